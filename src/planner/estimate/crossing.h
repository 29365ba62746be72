// SPDX-License-Identifier: Apache-2.0
// Plans on a mixed cluster (describe/cluster.h): an axis crosses its pools.
//
//   crosses pp  each stage is in one pool: the first stages in the first pool. A stage has
//               tp x cp x dp devices, and layers by the rate of its pool
//   crosses dp  each replica, with all its stages, is in one pool. A replica has tp x cp x pp
//               devices, and micro-batches by the rate of its pool
//
// tp, cp, ep and the ranks that exchange weights or gradients in each micro-batch stay in one pool.
// The rest crosses pools: messages between two stages, reductions of gradients once a step, the
// norm. On a cluster of one kind of device nothing crosses. Private to the planner.
#pragma once

#include "describe/job.h"

enum { OT_MOST_CROSSINGS = 2 };

// The axes that may cross in candidates of `job`. Returns their number.
//   out  [OT_MOST_CROSSINGS]
int ot_crossings_list(const ot_job *job, ot_crossing *out);

// OT_USAGE if the job gives an axis that crosses where nothing can.
ot_status ot_crossing_check_given(const ot_job *job);

// OT_USAGE unless the pools of the job's cluster hold whole stages or replicas of `candidate`.
ot_status ot_crossing_check(const ot_job *job, const ot_candidate *candidate);

// Keeps what crosses if it can; otherwise chooses the first of pp and dp that can.
void ot_candidate_cross(const ot_job *job, ot_candidate *candidate);
