// SPDX-License-Identifier: Apache-2.0
// Measured sweeps in the data: rows of one source with the same model, devices, batch, sequence and
// precision but different parallel configurations. A planner must choose among them, so the
// predicted order is compared with the measured order.
#pragma once

#include "published_price.h"

typedef struct ot_published_ranking {
  int64_t sweeps;  // of at least two configurations
  int64_t sweeps_with_pairs;
  int64_t pairs;        // whose measurements differ by more than 4 %
  double right_order;   // share of these pairs, in percent
  double right_sweeps;  // the same of each sweep, mean over sweeps with pairs
  double told;          // share of pairs that the planner says it can tell apart
  double right_told;    // of these, in the right order
  double worst_regret;  // slowdown of the configuration ranked first against the best, percent
  double mean_regret, median_regret;
} ot_published_ranking;

// Over the rows with measured and predicted step time. Identical rows (measured on other days)
// count as one configuration with their mean.
ot_published_ranking ot_published_ranking_of(const ot_published_prices *prices, ot_arena *arena);
