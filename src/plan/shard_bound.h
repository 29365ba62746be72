// SPDX-License-Identifier: Apache-2.0
// What the ways to cut weights and states cost at least: sums of gradients, gathers of weights and
// the update of one layer. Latencies and bytes of the collectives alone; kernels around them come
// on top in estimates. Private to plan/.
#pragma once

#include "plan/estimator.h"

typedef struct ot_shard_bound {
  double reduce_s;       // after the last micro-batch
  double reduce_each_s;  // after each one before
  double spread_s;       // after the last sum, where nothing is cut
  double gather_s;       // of weights that stand elsewhere, each time
  double end_s;          // after all sums: the update, and weights gathered then
  bool regathers;        // for every pass through the layer
} ot_shard_bound;

// Of a layer of `elements` parameters on one rank; zero and dp_shard as `candidate` says.
ot_status ot_shard_bound_build(const ot_estimator *estimator, const ot_candidate *candidate,
                               double elements, ot_shard_bound *out);

// Of each figure the smaller one.
void ot_shard_bound_merge(const ot_shard_bound *other, ot_shard_bound *out);
