// SPDX-License-Identifier: Apache-2.0
// Quantities as people read them: times, rates, bytes.
#pragma once

#include "base/arena.h"

// "3h12m", "2d04h", "12m30s", "45s".
int64_t ot_duration_print(char *out, int64_t capacity, double seconds);

// "12.3 ms", "1.27 s", from a minute on as above.
int64_t ot_seconds_print(char *out, int64_t capacity, double seconds);

// "412k", "1.23M", "987", three digits.
int64_t ot_rate_print(char *out, int64_t capacity, double value);

// "771 kB", "4.756 GB": four digits, powers of 1000; lives in `arena`.
const char *ot_bytes_text(ot_arena *arena, int64_t bytes);
