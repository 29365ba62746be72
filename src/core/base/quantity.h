// SPDX-License-Identifier: Apache-2.0
// Human-readable quantities: times, rates, bytes.
#pragma once

#include <stdbool.h>

#include "base/arena.h"

// Printed text can be read: every text of a function below is one that the readers accept, as
// the value that it shows.

// Reads all of `text` as a number in the units of `unit`, a word of a key or option: "seconds",
// "s", "ms", "hours": any time, such as 30d, 3h12m, 45.6 ms or 1.2 years, or a plain number;
// "percent": with or without %; "dollars...": with or without $; any other or null: a number of
// base/number.h with units of sizes and then FLOP, FLOPs, bytes or a rate of them (B/s,
// FLOP/s, /s). False for anything else.
bool ot_quantity_parse(const char *text, const char *unit, double *value);

// A time with its unit: us, ms, s, min or m, h, d or days, w or weeks, years; also several, as
// "2d04h".
bool ot_quantity_parse_time(const char *text, double *seconds);

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
const char *ot_figure_time(ot_arena *arena, double seconds);     // "31.5 days", "3.2 h", "12 s"
const char *ot_figure_share(ot_arena *arena, double share);      // "41.2%"
