// SPDX-License-Identifier: Apache-2.0
// Shared by the files that read records. A record is read rank by rank into lists, which are sorted
// at the end.
#pragma once

#include <jansson.h>

#include "checkpoint/safetensors.h"
#include "judge/recorded.h"

enum {
  OT_RECORDED_JSON_BYTES = 1 << 26,
  OT_RECORDED_JSON_LISTS = 1 << 20,
  OT_RECORDED_NAME_BYTES = 512,
  OT_RECORDED_TEXT_BYTES = 4096,     // notes
  OT_RECORDED_MICRO_MAX = 1 << 20,   // micro-batches of a rank
  OT_RECORDED_PIECES_MAX = 1 << 24,  // of all ranks
};

// A tensor of one rank.
typedef struct ot_recorded_entry {
  ot_recorded_tensor tensor;  // without pieces
  ot_recorded_piece piece;
} ot_recorded_entry;

// A record while it is read. The lists grow in `arena`.
typedef struct ot_recorded_reading {
  ot_arena *arena;
  ot_recorded_step *step;
  ot_recorded_rank *ranks;  // [step->world]
  int rank;                 // the one that is read
  const char *file;         // its text, for messages
  ot_recorded_entry *entries;
  int64_t num_entries, entries_capacity;
  ot_recorded_batch *batches;
  int64_t batches_capacity;
  ot_recorded_scalar *scalars;
  int64_t scalars_capacity;
  ot_recorded_group *groups;
  int64_t groups_capacity;
  ot_recorded_alias *aliases;
  int64_t aliases_capacity;
  bool explicit_data;        // the record says which axes have different batches
  int64_t num_unknown;       // tensors of unknown kinds
  const char *unknown_kind;  // the first of these
} ot_recorded_reading;

// A member of `object` that may be absent: *value is then null. OT_ENVIRONMENT if it is present and
// of another type (JSON_STRING, JSON_ARRAY, ...).
ot_status ot_recorded_member(const ot_recorded_reading *reading, const json_t *object,
                             const char *key, json_type type, const json_t **value);

// A copy of the text `value`, OT_ENVIRONMENT unless it is one of at most `most` bytes; `what` names
// it in messages.
ot_status ot_recorded_text(const ot_recorded_reading *reading, const json_t *value,
                           const char *what, int64_t most, const char **text);

// The number `value`, which may be a text such as "nan"; false if it is none.
bool ot_recorded_number(const json_t *value, double *number);

// The settings of one rank besides its tensors: mesh, coordinates, batches, scalars, optimizer,
// aliases. The mesh is that of rank 0, or compared with it.
ot_status ot_recorded_read_mesh(ot_recorded_reading *reading, const json_t *root);
ot_status ot_recorded_read_settings(ot_recorded_reading *reading, const json_t *root);
ot_status ot_recorded_read_optimizer(ot_recorded_reading *reading, const json_t *root);

// The tensors of one rank, whose places are in `places`.
ot_status ot_recorded_read_tensors(ot_recorded_reading *reading, const json_t *places,
                                   const ot_safetensors *files);

// After the last rank: which ranks read the same batches, and the tensors with their pieces.
ot_status ot_recorded_group_ranks(ot_recorded_reading *reading);
ot_status ot_recorded_join(ot_recorded_reading *reading);
