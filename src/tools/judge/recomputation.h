// SPDX-License-Identifier: Apache-2.0
// Computes the step of a record again, in several ways at once: the judge's own, in the types of
// the record, and under each hypothesis. All go through the model together, block by block, so that
// only what enters the blocks is kept of each, and the gradients of one block. Ways that differ in
// what is predicted only share their forward pass.
#pragma once

#include "judge/hypothesis.h"
#include "judge/recorded.h"

enum { OT_RECOMPUTATION_STREAMS = 64 };  // at most

// One way to compute the step.
typedef struct ot_recomputation_stream {
  const ot_judged_step *step;  // its model differs from the record's in no shape
  ot_plain_type type;
  bool reversed;  // see ot_plain_request
  bool apart;     // its values are exchanged: it uses the forward pass of no other
} ot_recomputation_stream;

// Elements [first, first + count) of a tensor in the order of its file, which has `elements`. The
// backward pass gives tensors one after another, each in chunks upwards.
typedef struct ot_recomputed {
  const char *name;  // HF name, valid during the call
  int64_t elements, first, count;
  const double *weight;            // [count]
  const double *const *gradients;  // [num_streams][count]; null: no longer wanted
} ot_recomputed;

// The values that a block exchanges with its neighbours in one stream.
typedef struct ot_recomputed_exchange {
  int stream, block;  // in graph->blocks
  bool backward;      // values: the gradient of what entered the block; else what it returned
  int64_t inputs;     // N
  void *values;       // [N, R, C] of the type of the stream; may be changed
  ot_dtype dtype;
  ot_plain_router router;  // of the layer, forward; zeros elsewhere
} ot_recomputed_exchange;

typedef struct ot_recomputation_request {
  const ot_recorded_step *step;
  int num_streams;
  const ot_recomputation_stream *streams;  // [num_streams]
  int threads;
  // Called with each chunk. An error ends the computation.
  ot_status (*receive)(void *context, const ot_recomputed *values);
  // Whether the gradients of stream `stream` are still wanted; called after each block of the
  // backward pass. Null: they all are.
  bool (*wants)(void *context, int stream);
  // Blocks [first_block, end_block) of the graph only, whose losses are NAN; end_block 0: all. What
  // enters the first one and the gradient of what the last one returns come from `exchange`, which
  // is called as if the blocks before and after the range had been computed. The embedding is
  // computed if the range begins with the first layer.
  int first_block, end_block;
  // Called with what each block exchanges, forward and backward, stream after stream; null: never.
  ot_status (*exchange)(void *context, const ot_recomputed_exchange *values);
  // Called after each block; null: never.
  void (*progress)(void *context, int done, int all);
  void *context;
} ot_recomputation_request;

// losses [num_streams] receives the loss of each, in nats, with the router losses that it adds in
// the blocks whose gradients are wanted. OT_ENVIRONMENT if a weight of the model
// is not in the record, OT_USAGE if the plain model does not support the model.
ot_status ot_recomputation_run(const ot_recomputation_request *request, double *losses);
