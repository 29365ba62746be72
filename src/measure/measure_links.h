// SPDX-License-Identifier: Apache-2.0
// What ranks of one machine take for collectives and messages, by size and number of ranks.
#pragma once

#include "base/arena.h"
#include "describe/cluster.h"

typedef struct ot_measured_links {
  ot_collective_rates *rates;  // [num_rates]
  int64_t num_rates;
} ot_measured_links;

// Among 2, 4, 8, ... up to `most` ranks. In `arena`. Blocks.
ot_status ot_measure_links(int most, bool quick, ot_arena *arena, ot_measured_links *out);
