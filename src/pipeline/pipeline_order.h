// SPDX-License-Identifier: Apache-2.0
// In which order each stage of a pipeline runs its forwards and backwards: lists of actions, from
// formulas (docs name the papers), or from a file. Nothing here knows blocks, memory or messages.
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "describe/run.h"

typedef enum ot_action_kind {
  OT_ACTION_FORWARD,   // F
  OT_ACTION_INPUT,     // I: gradients of inputs ("B" in papers that split the backward)
  OT_ACTION_WEIGHT,    // W: gradients of weights
  OT_ACTION_BACKWARD,  // I and W at once
  OT_ACTIONS,
} ot_action_kind;

// Work of a micro-batch: what actions are counted by. B counts as I does.
typedef enum ot_work {
  OT_WORK_FORWARD,
  OT_WORK_BACKWARD,  // B or I
  OT_WORK_WEIGHT,
  OT_WORKS,
} ot_work;

typedef struct ot_action {
  ot_action_kind kind;
  int chunk;  // of the whole model, [0, num_chunks)
  int micro_batch;
} ot_action;

typedef struct ot_pipeline_order {
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;   // [num_chunks] as ot_stages
  bool split;           // I and W apart
  int *num_actions;     // [num_ranks]
  ot_action **actions;  // [num_ranks][num_actions]
} ot_pipeline_order;

typedef struct ot_pipeline_request {
  ot_pipeline kind;
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;  // kept
  const char *csv;     // text of a compute order file, or null; then `kind` is not looked at
} ot_pipeline_request;

// A compute order file has a line for each rank, of entries set apart by commas: chunk, F, I, W or
// B, micro-batch (2F0, 1I3), or nothing, for a bubble. Where some rank has I or W, a B stands for I
// and W right after one another. torch.distributed.pipelining writes and reads such files.

// Builds and checks. GPipe, 1F1B and interleaved run I and W at once, the zb orders apart. One rank
// runs any number of chunks: each micro-batch forward and back before the next one (gpipe: all
// forwards first). OT_USAGE where a schedule does not go with the number of micro-batches or
// chunks, naming the nearest that do.
ot_status ot_pipeline_order_build(const ot_pipeline_request *request, ot_arena *arena,
                                  ot_pipeline_order *out);

// Every action of every (chunk, micro-batch) once and on its rank; F, I and W of a chunk by
// micro-batch; no circle of waiting between ranks. Names the first action that breaks a rule.
ot_status ot_pipeline_order_check(const ot_pipeline_order *order, ot_arena *arena);

// The order as such a file, without bubbles.
const char *ot_pipeline_order_print(const ot_pipeline_order *order, ot_arena *arena);

// F, I, W or B.
char ot_action_letter(ot_action_kind kind);

ot_work ot_action_work(ot_action_kind kind);

// What must be done before `action` can run, whatever its rank did before: at most two actions.
// Returns how many.
int ot_action_needs(const ot_pipeline_order *order, const ot_action *action, ot_action needs[2]);
