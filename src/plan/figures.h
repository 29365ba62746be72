// SPDX-License-Identifier: Apache-2.0
// Figures as people write them, in texts of an arena: four digits of bytes, three of the rest,
// powers of 1000.
#pragma once

#include "base/arena.h"

const char *ot_figure_bytes(ot_arena *arena, double bytes);  // "128.5 GB"
// "80.72 GB of 80 GB", with as many digits as tell a need from a capacity that is below it.
const char *ot_figure_need(ot_arena *arena, double bytes, double capacity);
const char *ot_figure_count(ot_arena *arena, double count);      // "8.03B", "16.8M", "512"
const char *ot_figure_flops(ot_arena *arena, double flops);      // "48.2 GFLOP"
const char *ot_figure_seconds(ot_arena *arena, double seconds);  // "1.23 s", "45.6 ms", "7.8 us"
const char *ot_figure_share(ot_arena *arena, double share);      // "41.2%"
