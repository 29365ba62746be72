// SPDX-License-Identifier: Apache-2.0
// Duration of a pipeline schedule if each action has a fixed cost. Replays the schedule: each rank
// runs its own list, an action starts as soon as its rank is free and its inputs have arrived.
// Exact; the only bubble and memory figures that hold for unequal costs.
#pragma once

#include "pipeline/pipeline_schedule.h"

typedef struct ot_order_costs {
  const double *forward, *input, *weight;  // [num_chunks] any unit of time; B costs input + weight
  double message;       // from the end of an action to the start of a dependent one on another rank
  bool message_blocks;  // the sending rank is idle meanwhile
  double pair;  // a pair starts with the inputs of both, takes this share of their time and ends
                // both at once; 0: its actions run one after the other
} ot_order_costs;

typedef struct ot_rank_price {
  double start, end;  // of the first and the last action
  double busy;        // total time of its actions
  double idle;        // makespan - busy
  int peak_chunks;    // peak number of live activations of (chunk, micro-batch), F to W (or B)
} ot_rank_price;

typedef struct ot_order_price {
  double makespan;
  ot_rank_price *ranks;  // [num_ranks]
} ot_order_price;

// `order` must have passed its check.
void ot_order_price_build(const ot_pipeline_schedule *order, const ot_order_costs *costs,
                          ot_arena *arena, ot_order_price *out);
