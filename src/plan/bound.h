// SPDX-License-Identifier: Apache-2.0
// Lower bounds of the step and the memory of a candidate, at two depths: the first is at most the
// second, and that at most the estimate. Private to plan/.
//
//   floor  blocks as if a micro-batch were the whole batch and nobody held a part of a sequence,
//          for few sizes are priced then: half of what a kernel does or a message carries takes
//          half as long, or longer
//   order  blocks as they are
//
// Time. With F, B the forward and backward of one micro-batch on a chunk, m micro-batches, and for
// any stage r: nothing runs there before the first micro-batch has come through all chunks before
// its first one, and when it has done its own m (F + B), the last micro-batch goes back through
// those. So step >= (sum of F before r) + m (F_r + B_r) + (sum of B before r). Where I and W are
// apart, I takes the place of B, and W may run last instead of the way back. A recompute needs not
// wait for the way back. Where chunks are not cut yet: some stage has at least ceil(layers /
// stages) layers, and with exactly so many, more than one stage has, so one of them is well down
// the line.
#pragma once

#include "plan/estimator.h"

// What one kind of block takes of one micro-batch.
typedef struct ot_block_bound {
  double work_s[OT_WORKS];  // recompute included
  double back_s;            // BACKWARD without the recompute
  int64_t elements;         // of parameters
  int64_t slot_bytes;       // kept from forward to backward
  int64_t scratch_bytes;    // while it is worked on
} ot_block_bound;

// Of all kinds, by what cuts a micro-batch.
typedef struct ot_work_bound {
  ot_candidate key;
  ot_block_bound *kind;  // [num_kinds]
} ot_work_bound;

typedef enum ot_bound_depth { OT_BOUND_FLOOR, OT_BOUND_ORDER, OT_BOUND_DEPTHS } ot_bound_depth;

// zero and dp_shard of `candidate` count for memory only.
ot_status ot_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                         ot_bound_depth depth, ot_estimate_bound *out);

// Whether `peak` bytes fit a device beside what the engine and the runtime take.
bool ot_bound_fits(const ot_estimator *estimator, int64_t peak);
