// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as executed: the actions of all stages in one valid execution order, the
// messages between stages, and the lifetimes of saved activations. Schedules are built from it;
// estimates replay it.
//
// A stage posts a receive two actions ahead: after the action before the one before its reader, and
// two receives when the step starts. Messages of one direction use send buffers in turn: an action
// that makes one waits until the previous message in its buffer has been sent.
#pragma once

#include "pipeline/pipeline_schedule.h"

// One action. Messages are identified by index; -1: none.
typedef struct ot_flow_action {
  int32_t rank, chunk, micro_batch;
  int32_t in, out;  // message that it reads; message that it makes
  int32_t buffer;   // send buffer of `out`, per stage and direction
  int32_t reuse;    // previous message in that buffer
  int32_t posts;    // message whose receive is posted after this action
  int32_t paired;   // 1: an F that runs together with the backward after it, for which it waits
  ot_work work;
} ot_flow_action;

// Saved tensors of a chunk's micro-batch, by lifetime.
typedef enum ot_saved_kind {
  OT_SAVED_SHORT,     // from F to I, or B
  OT_SAVED_LONG,      // from F to W
  OT_SAVED_WEIGHT,    // from I to W
  OT_SAVED_INPUT,     // input of the chunk: from its arrival to W
  OT_SAVED_D_OUTPUT,  // gradient of its output: the same
  OT_SAVED_KINDS,
} ot_saved_kind;

// Actions of a rank, as indices in its list, both inclusive.
typedef struct ot_saved_span {
  int first, last;
} ot_saved_span;

typedef struct ot_pipeline_flow {
  int num_ranks, num_chunks, micro_batches;
  const int *rank_of;  // [num_chunks] rank_of of the schedule
  bool split;          // I and W are separate
  int send_buffers;    // per stage and direction
  int64_t num_actions;
  ot_flow_action *actions;  // [num_actions] dependencies come first
  int32_t **of_rank;        // [num_ranks][num_of_rank] per rank: indices into `actions`
  int *num_of_rank;         // [num_ranks]
  int32_t *first_posts;     // [2 * num_ranks] messages whose receive is posted at the start
  int64_t num_messages;
  int32_t *place[OT_WORKS];   // [num_chunks * micro_batches] index of the action in its rank's list
  int *most[OT_SAVED_KINDS];  // [num_chunks] largest number of micro-batches held at once
  // Adjacent actions of a stage on the same chunk [num_chunks], ignoring W: a forward and a
  // backward, or two in the same direction.
  int *turns, *repeats;
  // Complete backwards (W if split) of a chunk before the first one of the last micro-batch on its
  // rank [num_chunks].
  int *before_last;
} ot_pipeline_flow;

// Builds from a schedule that passed its check. Send buffers: the fewest without deadlock, at least
// two, so that one is filled while the other is sent. Keeps order->rank_of. Allocates in `arena`;
// temporaries in `scratch` may be freed afterwards.
void ot_pipeline_flow_build(const ot_pipeline_schedule *order, ot_arena *arena, ot_arena *scratch,
                            ot_pipeline_flow *out);

// The most bytes of `arena` that the flow of `order` takes: a multiple of 16, as arenas are
// aligned.
int64_t ot_pipeline_flow_bytes(const ot_pipeline_schedule *order);

// Lifetime of a saved tensor of `kind`, in actions; both ends ascend with micro_batch.
ot_saved_span ot_pipeline_flow_saved(const ot_pipeline_flow *flow, ot_saved_kind kind, int chunk,
                                     int micro_batch);

// Properties of a message.
typedef struct ot_flow_message {
  int from, into;  // adjacent chunks
  int micro_batch;
  bool backward;
  int boundary;  // pipeline boundary between chunks boundary - 1 and boundary
} ot_flow_message;

ot_flow_message ot_pipeline_flow_message(const ot_pipeline_flow *flow, int32_t message);
