// SPDX-License-Identifier: Apache-2.0
// Measured sweeps inside the data: rows of one source with the same model, devices, count, batch,
// sequence and precision that differ in how the step is split. What a planner is for is choosing
// among them, so the order of predictions is held against the order of measurements.
#pragma once

#include "published_price.h"

typedef struct ot_published_ranking {
  int64_t sweeps;       // of at least two ways
  int64_t pairs;        // whose measurements differ by more than 4 %
  double right_order;   // share of these pairs, in percent
  double worst_regret;  // how much slower the way ranked first is than the best, in percent
  double mean_regret, median_regret;
} ot_published_ranking;

// Over the rows whose step time is measured and priced. Rows that differ in nothing (another day)
// count as one way with their mean.
ot_published_ranking ot_published_ranking_of(const ot_published_prices *prices, ot_arena *arena);
