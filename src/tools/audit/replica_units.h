// SPDX-License-Identifier: Apache-2.0
// The contents of a rank as a list of units. The key of a unit tells which numbers of the whole
// model or run it holds: ranks that have a unit of the same key must hold the same bits. Keys
// derive from coordinates in the HF tensors only, not from the groups of the engine's reductions
// and gathers, so a wrong group is detected like any other fault. A hasher detects whether units
// have changed or differ between ranks.
#pragma once

#include "describe/mesh.h"
#include "runtime/model_runtime.h"

// Numbers kept by the loop, outside the arena; the same on all ranks.
typedef enum ot_replica_word {
  OT_WORD_SEED,
  OT_WORD_STEP,
  OT_WORD_NEXT_SAMPLE,
  OT_WORD_TOKENS,
  OT_REPLICA_WORDS,
} ot_replica_word;

// The first kinds are those of ot_bucket_copy.
typedef enum ot_unit_kind {
  OT_UNIT_WEIGHT = OT_BUCKET_WEIGHT,
  OT_UNIT_GRADIENT = OT_BUCKET_GRADIENT,
  OT_UNIT_MOMENT_1 = OT_BUCKET_MOMENT_1,
  OT_UNIT_MOMENT_2 = OT_BUCKET_MOMENT_2,
  OT_UNIT_MASTER = OT_BUCKET_MASTER,
  OT_UNIT_SCALAR = OT_BUCKET_COPIES,  // index = ot_step_scalar
  OT_UNIT_BATCH,                      // index = ot_batch_field, of all micro-batches of the step
  OT_UNIT_WORD,                       // index = ot_replica_word
  OT_UNIT_KINDS,
} ot_unit_kind;

typedef struct ot_unit {
  uint64_t key;
  ot_unit_kind kind;
  int index;             // copies: index of the part among the parts of all parameters
  int64_t first, count;  // copies: elements of the part, in the order of its holders
  int64_t offset;        // bytes in the arena; batch: of the field in the first micro-batch
  int64_t size;          // bytes per element
} ot_unit;

typedef struct ot_unit_list {
  int num_units;
  ot_unit *units;       // [num_units]
  int64_t *part_count;  // [num_parts] elements of each part in the whole model
  int num_parts;
  int64_t batch_stride;  // bytes between micro-batches
} ot_unit_list;

// Lists the units of the rank at `rank` of `mesh`, in `arena`.
void ot_units_list(const ot_runtime *runtime, const ot_mesh *mesh, int rank, ot_arena *arena,
                   ot_unit_list *list);

// "weights", "gradients", "first moments", ...
const char *ot_unit_kind_name(ot_unit_kind kind);

// HF name of a part, or name of a scalar, field or word.
const char *ot_unit_name(const ot_runtime *runtime, ot_unit_kind kind, int index);

// Some of the units of this rank, in chunks that its threads hash concurrently.
typedef struct ot_unit_hasher {
  ot_runtime *runtime;
  const ot_unit_list *list;
  const bool *wanted;      // [list->num_units]
  int *first_chunk;        // [list->num_units + 1]
  int *unit;               // [chunks] unit of the chunk
  uint64_t *hashes;        // [chunks]
  unsigned char *staging;  // [threads], a chunk each
} ot_unit_hasher;

// For the units in `wanted`; keeps its arguments, allocates in `arena`.
void ot_unit_hasher_build(ot_runtime *runtime, const ot_unit_list *list, const bool *wanted,
                          ot_arena *arena, ot_unit_hasher *hasher);

// Sets hashes[i] of each wanted unit; does not change the others. One pass over memory.
void ot_unit_hasher_run(ot_unit_hasher *hasher, int64_t *hashes);

// Hash of [offset, offset + bytes) of the arena, on the calling thread.
uint64_t ot_unit_hasher_range(ot_unit_hasher *hasher, int64_t offset, int64_t bytes);
