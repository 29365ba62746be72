// SPDX-License-Identifier: Apache-2.0
// The pools of a job's cluster: their shares of a candidate, and their estimators, each of which
// computes the prices of the same blocks on its own devices. Private to the files that implement
// crossing.h and crossing_estimate.h.
#pragma once

#include "estimate/estimator.h"

// The estimators of all pools; that of the job is the first.
typedef struct ot_pools {
  int num;
  ot_estimator *estimator[OT_MAX_POOLS];  // [num]
} ot_pools;

// Stages and replicas of `candidate` in `pool`.
int ot_pool_stages(const ot_job *job, const ot_candidate *candidate, int pool);
int ot_pool_replicas(const ot_job *job, const ot_candidate *candidate, int pool);

// The prices of a micro-batch in each pool.
//   out  [num]
ot_status ot_pools_find_works(const ot_pools *pools, const ot_candidate *candidate,
                              const ot_prices **out);

// Seconds of a micro-batch in block `kind`, and in the whole model, forward and backward.
double ot_pool_block_s(const ot_prices *prices, int kind);
double ot_pool_model_s(const ot_prices *prices);

// Micro-batches of each replica in each pool, which make the slowest pool as fast as possible.
// OT_USAGE if the sequences cannot be divided so.
//   out  [num]
ot_status ot_pool_micro_batches(const ot_estimator *estimator, const ot_candidate *candidate,
                                int64_t *out);
