// SPDX-License-Identifier: Apache-2.0
// Iterations of the inference engine: rows of tokens in, scores and logits out. The model may be
// sharded over ranks by stages of a pipeline and, inside a stage, by tp (experts over ep x etp =
// tp). The first rank of the first stage leads: it has the engine, tells the others what to
// compute, and joins the shards of the vocabulary that the last stage sends it. As many iterations
// are under way as there are stages, so that each stage computes one while others compute theirs;
// all stages compute them in the order in which they began. Memory is allocated once. Private to
// runtime/.
#pragma once

#include "ops/head.h"
#include "runtime/model_runtime.h"

typedef enum ot_row_field {
  OT_ROW_TOKENS,
  OT_ROW_POSITIONS,
  OT_ROW_TARGETS,    // < 0: no score
  OT_ROW_SEQUENCES,  // slots
  OT_ROW_FIELDS,
} ot_row_field;

// One iteration.
typedef struct ot_flight {
  // what to compute
  ot_mode mode;  // prefill: scores, and logits of the picked rows; decode: logits of all rows
  int64_t num_rows, num_picks;
  int32_t *row[OT_ROW_FIELDS];  // [chunk]
  int32_t *picks;               // [slots] rows
  // what came out, on the rank that leads
  void *logits;                         // [slots, V] as computed
  double *logprob;                      // [chunk] of the targets
  double *best;                         // [chunk] of the most probable tokens
  int32_t *greedy;                      // [chunk] these; -1: logits are NaN
  struct ot_flight_messages *messages;  // null: one rank
} ot_flight;

typedef struct ot_iteration {
  ot_runtime *runtime;
  int64_t slots, chunk, table;  // table: pages of a sequence
  int64_t V;                    // of the whole model
  ot_dtype compute;
  struct ot_iteration_ranks *ranks;  // null: one rank
  int32_t *pages;                    // [slots, table]
  bool pages_changed;                // since the last iteration began
  int depth;                         // iterations under way at most
  ot_flight *flights;                // [depth]
  int64_t begun, ended;
} ot_iteration;

// `runtime` was created by a request that ot_inference_complete completed; kept. Local.
ot_status ot_iteration_create(ot_runtime *runtime, ot_iteration *out);
void ot_iteration_destroy(ot_iteration *iteration);

// The narrowest mode for `rows` tokens that the runtime has: of prefill if `scores`, else of
// decode.
ot_mode ot_iteration_mode(const ot_iteration *iteration, int64_t rows, bool scores);

// The iteration to begin next, whose members say what to compute; the one to end next.
ot_flight *ot_iteration_next(ot_iteration *iteration);
ot_flight *ot_iteration_oldest(ot_iteration *iteration);

// Computes this rank's part of the next iteration. Less than `depth` are under way.
ot_status ot_iteration_begin(ot_iteration *iteration);

// Waits for the results of the oldest iteration, which are valid until it is ended.
ot_status ot_iteration_wait(ot_iteration *iteration);
void ot_iteration_end(ot_iteration *iteration);

// Logits of the oldest iteration, [V], and the score of `target` (negative: none) by them.
void ot_iteration_read_logits(ot_iteration *iteration, int pick, double *to);
ot_row_score ot_iteration_score_row(ot_iteration *iteration, int pick, int32_t target);

// The other ranks return from ot_iteration_follow, and may follow again. No iteration is under way.
ot_status ot_iteration_dismiss(ot_iteration *iteration);

// Computes what the leading rank says, until it dismisses. Blocks.
ot_status ot_iteration_follow(ot_runtime *runtime);
