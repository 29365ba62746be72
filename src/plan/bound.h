// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the step and the memory of a candidate, at several depths: each is at most the
// estimate, and takes more to know than the one before. Private to plan/.
//
//   mean     the floor on stages that all have the same share of the blocks: no way to cut them is
//            looked at, for the fullest stage has no less than the mean, whatever the order
//   floor    blocks as if a micro-batch were the whole batch and nobody held a part of a sequence,
//            for few sizes are priced then: half of what a kernel does or a message carries takes
//            half as long, or longer
//   plain    the next one, of a step that makes nothing again; says nothing of memory
//   context  the same with the parts of a sequence that ranks hold, and what they send each other
//   block    blocks as they are
//   order    and what the order of the stages keeps and gathers
//
// Time. With F, B the forward and backward of one micro-batch, m micro-batches, and any stage r:
// nothing runs there before the first micro-batch has come through all chunks before its first one,
// and when it has done its own m (F + B), the last micro-batch goes back through those. So
//
//   step >= (sum of F before r) + m (F_r + B_r) + (sum of B before r)
//
// Where I and W are apart, I takes the place of B, and W may run last instead of the way back. A
// recompute needs not wait for the way back. In the same way, for any chunk. Collectives of data
// parallelism either stand between the stage's work, or have a lane that is no shorter than all of
// them; and weights that are gathered one block ahead take as long as the block before, or longer.
// Kernels beside a collective take longer, by a share of the shorter of both.
#pragma once

#include "plan/framework.h"

// What one kind of block takes of one micro-batch.
typedef struct ot_block_bound {
  double work_s[OT_WORKS];  // recompute included
  double back_s;            // BACKWARD without the recompute
  bool experts;             // in the expert view
  int64_t elements;         // of parameters
  int64_t slot_bytes[OT_SLOT_CLASSES];
  int64_t scratch_bytes;  // while it is worked on
  int64_t input_bytes;    // that enter it, where something does
  bool weights_read_in;   // W reads them
} ot_block_bound;

// Of all kinds, by what cuts a micro-batch.
typedef struct ot_work_bound {
  ot_block_bound *kind;      // [num_kinds]
  double layer_elements;     // of the smallest kind of layer, in the dense view
  double forward_s, back_s;  // of the longest from one dense block to the next; back: with the
                             // recompute, without W
  double least_s[OT_WORKS];  // of the shortest dense block
  bool split;                // I and W apart
} ot_work_bound;

typedef enum ot_bound_depth {
  OT_BOUND_MEAN,
  OT_BOUND_FLOOR,
  OT_BOUND_PLAIN,
  OT_BOUND_CONTEXT,
  OT_BOUND_BLOCK,
  OT_BOUND_ORDER,
  OT_BOUND_DEPTHS,
} ot_bound_depth;

typedef struct ot_bound_request {
  const ot_candidate *candidate;
  ot_bound_depth depth;
  const ot_shard_bound *shards;  // of a layer; null: of candidate's zero and dp_shard
} ot_bound_request;

// What a layer of `elements` parameters on one rank takes to sum, gather and update, zero and
// dp_shard as `candidate` says.
ot_status ot_shard_bound_build(const ot_estimator *estimator, const ot_candidate *candidate,
                               double elements, ot_shard_bound *out);

// Of each figure the smaller one.
void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out);

// zero and dp_shard of the candidate count for memory.
ot_status ot_bound_build(ot_estimator *estimator, const ot_bound_request *request,
                         ot_estimate_bound *out);

// The parameters that one rank has of a layer, at least; over ep, of its attention.
ot_status ot_bound_elements(ot_estimator *estimator, const ot_candidate *candidate,
                            double *elements);

// Bytes of a device with what allocator and runtime take beside `peak`, as estimates count them;
// and whether it has so many.
int64_t ot_bound_used(const ot_estimator *estimator, int64_t peak);
bool ot_bound_fits(const ot_estimator *estimator, int64_t peak);
