// SPDX-License-Identifier: Apache-2.0
// Plans on a mixed cluster (crossing.h): which pool has which ranks, and how much work. Private to
// the planner.
#pragma once

#include "estimate/estimator.h"

// Stages and replicas of `candidate` in `pool`.
int ot_pool_stages(const ot_job *job, const ot_candidate *candidate, int pool);
int ot_pool_replicas(const ot_job *job, const ot_candidate *candidate, int pool);

// `shape`, whose first rank is in the estimator's pool, with the number of its ranks there.
ot_group_shape ot_pool_shape(const ot_estimator *estimator, const ot_candidate *candidate,
                             ot_group_shape shape);

// Micro-batches of each replica in each pool, which make the slowest pool as fast as possible.
// OT_USAGE if the sequences cannot be divided so.
//   out  [num_pools]
ot_status ot_pool_micro_batches(ot_estimator *estimator, const ot_candidate *candidate,
                                int64_t *out);

// Divides the blocks into contiguous chunks, whose slowest is as fast as possible, by the time of
// each block in the pool of its stage. `equal`: all pools are equally fast; nothing is divided
// then.
//   stages  its ranks, chunks and their stages are given; first_block is filled
ot_status ot_pool_partition(ot_estimator *estimator, const ot_candidate *candidate,
                            const ot_block_list *blocks, ot_stages *stages, bool *equal);

// Lower bound of the seconds of a step of `candidate` by the work of its blocks alone, if it were
// divided perfectly. Blocks are priced as those of `priced`, of which they take at least the share
// `scale`.
ot_status ot_pools_bound(ot_estimator *estimator, const ot_candidate *candidate,
                         const ot_candidate *priced, double scale, double *seconds);
