// SPDX-License-Identifier: Apache-2.0
// Human-readable quantities: times, rates, bytes.
#pragma once

#include "base/arena.h"

// "3h12m", "2d04h", "12m30s", "45s".
int64_t ot_duration_print(char *out, int64_t capacity, double seconds);

// "12.3 ms", "1.27 s"; from one minute on as above.
int64_t ot_seconds_print(char *out, int64_t capacity, double seconds);

// "412k", "1.23M", "987", three digits.
int64_t ot_rate_print(char *out, int64_t capacity, double value);

// Texts in an arena: four digits for bytes, three for the rest, powers of 1000.

const char *ot_figure_bytes(ot_arena *arena, double bytes);  // "771 kB", "128.5 GB"
// "80.72 GB of 80 GB", with enough digits to distinguish a need from a smaller capacity.
const char *ot_figure_need(ot_arena *arena, double bytes, double capacity);
const char *ot_figure_count(ot_arena *arena, double count);      // "8.03B", "16.8M", "512"
const char *ot_figure_flops(ot_arena *arena, double flops);      // "48.2 GFLOP"
const char *ot_figure_seconds(ot_arena *arena, double seconds);  // "1.23 s", "45.6 ms", "7.8 us"
const char *ot_figure_share(ot_arena *arena, double share);      // "41.2%"
