// SPDX-License-Identifier: Apache-2.0
// One iteration of the inference engine: rows of tokens in, scores and logits out. The model may be
// sharded over ranks (tp, and experts over ep x etp = tp): rank 0 has the engine and passes on what
// to compute, the others follow, and rank 0 joins their shards of the vocabulary. Memory is
// allocated once. Private to runtime/.
#pragma once

#include "runtime/model_runtime.h"

typedef enum ot_row_field {
  OT_ROW_TOKENS,
  OT_ROW_POSITIONS,
  OT_ROW_TARGETS,    // < 0: no score
  OT_ROW_SEQUENCES,  // slots
  OT_ROW_FIELDS,
} ot_row_field;

struct ot_iteration_ranks;

typedef struct ot_iteration {
  ot_runtime *runtime;
  int64_t slots, chunk, table;  // table: pages of a sequence
  int64_t V;                    // of the whole model
  ot_dtype compute;
  struct ot_iteration_ranks *ranks;  // null: one rank
  // what to compute
  ot_mode mode;  // prefill: scores, and logits of the picked rows; decode: logits of all rows
  int64_t num_rows, num_picks;
  int32_t *row[OT_ROW_FIELDS];  // [chunk]
  int32_t *picks;               // [slots] rows
  int32_t *pages;               // [slots, table]
  bool pages_changed;           // since the last iteration
  // what came out, on rank 0
  void *logits;     // [slots, V] as computed
  double *logprob;  // [chunk] of the targets
  double *best;     // [chunk] of the most probable tokens
  int32_t *greedy;  // [chunk] these; -1: logits are NaN
} ot_iteration;

// `runtime` was created by a request that ot_inference_complete completed; kept. Local.
ot_status ot_iteration_create(ot_runtime *runtime, ot_iteration *out);
void ot_iteration_destroy(ot_iteration *iteration);

// The narrowest mode for `rows` tokens that the runtime has: of prefill if `scores`, else of
// decode.
ot_mode ot_iteration_mode(const ot_iteration *iteration, int64_t rows, bool scores);

// Computes what the members say. Collective over the world: other ranks are in ot_iteration_follow.
ot_status ot_iteration_run(ot_iteration *iteration);

// Ranks other than 0 return from ot_iteration_follow. Collective over the world.
ot_status ot_iteration_dismiss(ot_iteration *iteration);

// Computes what rank 0 says, until it dismisses. Collective over the world. Blocks.
ot_status ot_iteration_follow(ot_runtime *runtime);
