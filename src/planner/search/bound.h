// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the step time and the memory of a candidate, at several depths. Each is at most
// the estimate, and costs more to compute than the one before. Private to the planner.
//
//   floor    blocks priced for a micro-batch of the whole batch without context parallelism, so
//            few sizes are priced; half the work of a kernel or the bytes of a message takes at
//            least half the time
//   plain    the next one for a step without recompute; gives no memory bound
//   context  the same with context parallelism and its communication
//   block    exact block costs
//   cut      the partition of the blocks into stages
//   order    with what the pipeline schedule saves and gathers
//   replay   the pipeline event by event, without collectives of data parallelism; one for all
//            shardings
//
// Time. F, B: forward and backward of one micro-batch; m micro-batches; r: any stage. Stage r
// starts when the first micro-batch has passed all chunks before its first one (pipeline fill).
// After its own m (F + B), the last micro-batch goes back through those chunks (drain):
//
//   step >= (sum of F before r) + m (F_r + B_r) + (sum of B before r)
//
// Where I and W are separate, I replaces B, and W may run last instead of the drain. A recompute
// need not wait for the drain. The same holds for any chunk. Collectives of data parallelism run
// either between the stage's kernels, or on a lane that takes at least their total time. Weights
// that are gathered one block ahead take at least as long as the block before. Kernels that run
// concurrently with a collective are slowed down by a share of the shorter of both.
//
// Gradients that are reduced once have all forwards of their stage before them, and the backwards
// of earlier micro-batches, as far as the schedule runs them first.
//
// A bound without the partition gives each stage an equal share of the blocks: the fullest stage
// has at least the mean. Of the bounds above, any mean over the stages bounds the longest one as
// well. With x_r for m (F_r + B_r), f for a lower bound of (F + B) / m (F + B), one chunk a stage
// and the weights (1 - f)^(p-1-r), all blocks weigh the same, whichever stage has them:
//
//   step >= f / (1 - (1 - f)^p) * (sum of x)
//
// With v chunks a stage, in rounds of at most p micro-batches, a stage has begun only the round of
// its chunks before chunk j when the first micro-batch reaches that, and after the last one has
// left it, ends only theirs. In the mean over all j and stages these cancel, except (p-1-r) of p v
// shares of the fill and the drain; with the mean of x_r that grows with r, and q = f (p-1) / v:
//
//   step >= (1 + q) / (1 + q/2) / p * (sum of x)
#pragma once

#include "estimate/framework.h"

// Cost of one kind of block for one micro-batch.
typedef struct ot_block_bound {
  double work_s[OT_WORKS];  // recompute included
  double back_s;            // BACKWARD without the recompute
  bool experts;             // in the expert view
  int64_t elements;         // parameters
  int64_t slot_bytes[OT_SLOT_CLASSES];
  int64_t scratch_bytes;         // temporaries of its kernels
  int64_t input_bytes;           // received from the block before; 0 if none
  bool weight_pass_reads_input;  // W reads the input
} ot_block_bound;

// Bounds over all kinds of blocks; depends on what shards a micro-batch.
typedef struct ot_work_bound {
  ot_block_bound *kind;         // [num_kinds]
  double elements[2];           // of the smallest block of a layer, by view
  double forward_s, back_s;     // longest, from one dense block to the next; back: with
                                // the recompute, without W
  double least_s[2][OT_WORKS];  // shortest block of a layer, by view
  double least_passing_s[2];    // of the work of these that a micro-batch takes to the next stage
                                // and back
  double most_work[2];          // of one of these, all work over that
  bool split;                   // I and W are separate
} ot_work_bound;

typedef enum ot_bound_depth {
  OT_BOUND_FLOOR,
  OT_BOUND_PLAIN,
  OT_BOUND_CONTEXT,
  OT_BOUND_BLOCK,
  OT_BOUND_CUT,
  OT_BOUND_ORDER,
  OT_BOUND_DEPTHS,
} ot_bound_depth;

// The pipeline schedules that a bound covers.
typedef enum ot_bound_scope {
  OT_SCOPE_ONE,
  OT_SCOPE_KIND,   // the same with any number of chunks
  OT_SCOPE_SPLIT,  // all that split the backward, or all that do not
  OT_BOUND_SCOPES,
} ot_bound_scope;

typedef struct ot_bound_request {
  const ot_candidate *candidate;
  ot_bound_depth depth;  // at most OT_BOUND_BLOCK for several schedules
  ot_bound_scope scope;
  const ot_shard_bound *shards;  // of a layer; null: from candidate's zero and dp_shard
  double work_s;                 // known to pass before norms and updates (ot_bound_replay)
} ot_bound_request;

// Seconds to reduce, gather and update blocks of `elements` parameters on one rank, by view, with
// zero and dp_shard of `candidate`.
ot_status ot_shard_bound_build(const ot_estimator *estimator, const ot_candidate *candidate,
                               const double elements[2], ot_shard_bound *out);

// Takes the minimum of each figure.
void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out);

// For memory, zero and dp_shard of the candidate are used.
ot_status ot_bound_build(ot_estimator *estimator, const ot_bound_request *request,
                         ot_estimate_bound *out);

// Lower bound of the time before norms and updates for every sharding of `candidate`: its pipeline,
// replayed without collectives of data parallelism. Costs as much as an estimate without them.
ot_status ot_bound_replay(ot_estimator *estimator, const ot_candidate *candidate, double *work_s);

// Lower bounds of the parameters of a layer on one rank: of the block in the expert view, if there
// is one, and of the other.
ot_status ot_bound_elements(ot_estimator *estimator, const ot_candidate *candidate,
                            double elements[2]);

// Bytes of device memory in use: `peak` with the allocator's slack and the runtime, as in
// estimates; and whether they fit the device.
int64_t ot_bound_used(const ot_estimator *estimator, int64_t peak);
bool ot_bound_fits(const ot_estimator *estimator, int64_t peak);
