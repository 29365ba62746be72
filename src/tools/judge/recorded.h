// SPDX-License-Identifier: Apache-2.0
// A training step that other software recorded: a folder with the model's config.json and, of each
// rank, what it held as rank-NNNNN.json and rank-NNNNN.safetensors (docs/record.md). Reading checks
// all texts, places and sizes, and keeps where values are in the files; assemble.h reads values and
// puts tensors and batches together. Records are untrusted: docs/untrusted-input.md has the limits.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "describe/model.h"

#define OT_RECORDED_FORMAT "orthant-step-1"

enum {
  OT_RECORDED_DIMS = 4,
  OT_RECORDED_AXES = 16,
  OT_RECORDED_VALUES = 4,       // numbers of a setting
  OT_RECORDED_RANKS = 1 << 16,  // ranks of a step
};

typedef enum ot_recorded_kind {
  OT_RECORDED_WEIGHT,        // before the step, as the forward pass used them
  OT_RECORDED_GRAD,          // at the moment that the record states
  OT_RECORDED_AFTER,         // weights after the step
  OT_RECORDED_M,             // first moments after the step
  OT_RECORDED_V,             // second moments after the step
  OT_RECORDED_M_BEFORE,      // moments before the step; none: zero
  OT_RECORDED_V_BEFORE,      //
  OT_RECORDED_MASTER,        // weights in the optimizer's type before the step
  OT_RECORDED_MASTER_AFTER,  // and after it
  OT_RECORDED_ACT,           // outputs of modules, one for each batch, as the next kinds are
  OT_RECORDED_ACT_GRAD,      // gradients of these
  OT_RECORDED_ROUTES,        // chosen experts, integers
  OT_RECORDED_LOGPROB,       // log-probabilities of targets
  OT_RECORDED_BATCH,         // ids, labels, positions, documents, weight
  OT_RECORDED_KINDS,
} ot_recorded_kind;

// Its name in keys: "weight", "act_grad".
const char *ot_recorded_kind_name(ot_recorded_kind kind);

// The part of a tensor that one rank holds: the block [offset, offset + block), or runs of its
// elements.
typedef struct ot_recorded_piece {
  int rank;
  int64_t offset[OT_RECORDED_DIMS], block[OT_RECORDED_DIMS];
  int num_runs;         // 0: the whole block
  const int64_t *runs;  // [2 * num_runs] first element in the block and count, upwards
  int64_t elements;     // held
  int64_t file_offset;  // first byte in the tensor file of the rank
} ot_recorded_piece;

typedef struct ot_recorded_tensor {
  ot_recorded_kind kind;
  const char *name;    // Hugging Face's, or that of a module; of batches the field, "ids"
  int micro, dp_rank;  // of kinds with one tensor for each batch; else -1
  int num_dims;
  int64_t shape[OT_RECORDED_DIMS];
  int64_t elements;  // of the whole tensor; at most those of all pieces together
  ot_dtype dtype;    // of all pieces
  uint32_t partial;  // axes, by bits, over which the pieces are still to be summed
  int num_pieces;
  const ot_recorded_piece *pieces;  // [num_pieces] by rank
} ot_recorded_tensor;

typedef struct ot_recorded_axis {
  const char *name;
  int size;
  bool data;  // its ranks read different batches
} ot_recorded_axis;

typedef struct ot_recorded_rank {
  const char *tensor_file;           // path
  int coordinate[OT_RECORDED_AXES];  // [num_axes]
  int dp_rank;                       // [0, dp_size): equal for ranks that read the same batches
  int num_batches;                   // recorded by it
} ot_recorded_rank;

// A batch as one rank recorded it.
typedef struct ot_recorded_batch {
  int rank, micro;
  bool shifted;  // labels are those that rows predict, not those of the rows themselves
} ot_recorded_batch;

typedef struct ot_recorded_scalar {
  int rank;
  const char *name;  // "loss"
  double value;      // may be NaN
} ot_recorded_scalar;

// A setting of an optimizer: numbers (true is 1) or a text.
typedef struct ot_recorded_setting {
  const char *name;                  // "betas"
  int count;                         // [0, OT_RECORDED_VALUES]
  double value[OT_RECORDED_VALUES];  // [count]
  const char *text;                  // or null
} ot_recorded_setting;

// Parameters of one rank's optimizer with the same settings.
typedef struct ot_recorded_group {
  int rank, index;        // in the optimizer of that rank
  const char *optimizer;  // class, "AdamW"
  int num_settings;
  const ot_recorded_setting *settings;  // [num_settings]
  int num_names;
  const char **names;  // [num_names] of parameters
} ot_recorded_group;

typedef struct ot_recorded_alias {
  const char *name, *target;  // of a tied tensor, and the name that the record has
} ot_recorded_alias;

typedef struct ot_recorded_step {
  const char *path;  // the folder
  ot_model model;
  const char *moment;    // of the gradients: "reduced, before clipping"
  const char *software;  // that recorded
  const char *note;      // of the user
  double dropout;        // the largest rate of the model
  int world;
  const ot_recorded_rank *ranks;  // [world]
  int num_axes;                   // a record without a mesh has one axis "rank" if world > 1
  ot_recorded_axis axes[OT_RECORDED_AXES];
  int dp_size;
  int64_t num_tensors;
  const ot_recorded_tensor *tensors;  // [num_tensors] by kind, name, dp_rank and micro
  int64_t num_batches;
  const ot_recorded_batch *batches;  // [num_batches] by rank and micro
  int64_t num_scalars;
  const ot_recorded_scalar *scalars;  // [num_scalars] by name and rank
  int64_t num_groups;
  const ot_recorded_group *groups;  // [num_groups] by rank and index
  int64_t num_aliases;
  const ot_recorded_alias *aliases;  // [num_aliases] by name
  int num_notes;
  const char *notes[4];  // [num_notes] for the user, whole sentences
} ot_recorded_step;

// Reads the record in the folder `path`; the result is in `arena`. OT_ENVIRONMENT for files that
// are missing, damaged or beyond the limits, OT_USAGE for files that contradict each other or the
// format.
ot_status ot_recorded_read(const char *path, ot_arena *arena, ot_recorded_step *out);

// Elements [first, first + elements) of a recorded tensor.
typedef struct ot_recorded_view {
  const ot_recorded_tensor *tensor;
  int64_t first, elements;
  int num_dims;
  int64_t shape[OT_RECORDED_DIMS];
} ot_recorded_view;

// The tensor called `name` in files of Hugging Face, under that name, as an alias, or in the stack
// of all experts of a layer that transformers has instead. False if the record has none; kinds with
// one tensor for each batch: the first.
bool ot_recorded_find(const ot_recorded_step *step, ot_recorded_kind kind, const char *name,
                      ot_recorded_view *view);

// The group of the parameter called `name`, as above, in the optimizer of the first rank that has
// it, or null; a setting of a group, or null; the scalar `name` of a rank, false if it has none.
const ot_recorded_group *ot_recorded_group_of(const ot_recorded_step *step, const char *name);
const ot_recorded_setting *ot_recorded_setting_of(const ot_recorded_group *group, const char *name);
bool ot_recorded_scalar_of(const ot_recorded_step *step, const char *name, int rank, double *value);

// Elements [first, first + count) of a piece, in the order of its file, as `dtype`.
typedef struct ot_recorded_range {
  int64_t first, count;
  ot_dtype dtype;
} ot_recorded_range;

// Reads them to `out` [count]. Integers only in the type of the tensor.
ot_status ot_recorded_load(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                           const ot_recorded_piece *piece, ot_recorded_range range, void *out);
