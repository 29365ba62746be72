// SPDX-License-Identifier: Apache-2.0
// A pipeline order as it runs: the actions of all stages in one list that can run front to back,
// the messages between stages, and from when to when a chunk keeps what a micro-batch needs.
// Schedules are built from it and estimates replay it.
//
// A stage begins to receive a message when the action before the one before its reader is done, two
// of them when the step begins. Messages of one direction leave from send buffers in turn: an
// action that makes one waits until the message that had its buffer before has left.
#pragma once

#include "pipeline/pipeline_order.h"

// One action. Messages are numbered; -1: none.
typedef struct ot_flow_action {
  int32_t rank, chunk, micro_batch;
  int32_t in, out;  // message that it reads, and that it makes
  int32_t buffer;   // of its stage and direction, that `out` takes
  int32_t reuse;    // message that had the buffer before
  int32_t posts;    // message whose receive begins when this action is done
  ot_work work;
} ot_flow_action;

// What a chunk keeps of a micro-batch, by how long.
typedef enum ot_kept {
  OT_KEPT_SHORT,     // from F to I, or B
  OT_KEPT_LONG,      // from F to W
  OT_KEPT_WEIGHT,    // from I to W
  OT_KEPT_INPUT,     // what enters the chunk: from its arrival to W
  OT_KEPT_D_OUTPUT,  // the gradient that enters it backwards: the same
  OT_KEPT_KINDS,
} ot_kept;

// Actions of a rank, as places in its list, both inclusive.
typedef struct ot_kept_span {
  int first, last;
} ot_kept_span;

typedef struct ot_pipeline_flow {
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;  // [num_chunks] of the order
  bool split;          // I and W apart
  int send_buffers;    // of a stage, in each direction
  int64_t num_actions;
  ot_flow_action *actions;  // [num_actions] what each needs comes before it
  int32_t **of_rank;        // [num_ranks][num_of_rank] those of each rank, as indices of `actions`
  int *num_of_rank;         // [num_ranks]
  int32_t *first_posts;     // [2 * num_ranks] messages whose receive begins with the step
  int64_t num_messages;
  int32_t *place[OT_WORKS];  // [num_chunks * micro_batches] of the action in its rank's list
  int *most[OT_KEPT_KINDS];  // [num_chunks] micro-batches of which that is kept at once
  // Actions of a stage next to each other that are of one chunk [num_chunks], Ws aside: a forward
  // and a backward, or two the same way.
  int *turns, *repeats;
} ot_pipeline_flow;

// Of an order that passed its check. Send buffers: the fewest with which no stage waits for ever,
// at least two, so that one is filled while the other is on its way. Keeps order->rank_of. Lives in
// `arena`; what it takes from `scratch` is free afterwards.
void ot_pipeline_flow_build(const ot_pipeline_order *order, ot_arena *arena, ot_arena *scratch,
                            ot_pipeline_flow *out);

// From when to when a chunk keeps what `kind` says of a micro-batch; both ascend with it.
ot_kept_span ot_pipeline_flow_kept(const ot_pipeline_flow *flow, ot_kept kind, int chunk,
                                   int micro_batch);

// What a message is.
typedef struct ot_flow_message {
  int from, into;  // chunks next to each other
  int micro_batch;
  bool backward;
  int boundary;  // it crosses: of chunks boundary - 1 and boundary
} ot_flow_message;

ot_flow_message ot_pipeline_flow_message(const ot_pipeline_flow *flow, int32_t message);
