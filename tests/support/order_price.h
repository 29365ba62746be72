// SPDX-License-Identifier: Apache-2.0
// What a pipeline order takes when each action has a fixed cost: the order is replayed, each rank
// its own list, an action as soon as its rank is free and what it needs has come. Exact; the only
// figures of bubbles and memory that hold for unequal costs.
#pragma once

#include "pipeline/pipeline_order.h"

typedef struct ot_order_costs {
  const double *forward, *input, *weight;  // [num_chunks] any unit of time; B costs input + weight
  double message;  // from the end of an action to the start of one on another rank that needs it
  bool message_blocks;  // and the sending rank does nothing meanwhile
} ot_order_costs;

typedef struct ot_rank_price {
  double start, end;  // of the first and the last action
  double busy;        // sum of its actions
  double idle;        // makespan - busy
  int peak_chunks;    // most activations of (chunk, micro-batch) held at once: from F to W (or B)
} ot_rank_price;

typedef struct ot_order_price {
  double makespan;
  ot_rank_price *ranks;  // [num_ranks]
} ot_order_price;

// `order` must have passed its check.
void ot_order_price_build(const ot_pipeline_order *order, const ot_order_costs *costs,
                          ot_arena *arena, ot_order_price *out);
