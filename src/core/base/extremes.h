// SPDX-License-Identifier: Apache-2.0
// The larger and the smaller of two numbers, without fmax of libm. If either is NaN the result is
// `b`.
#pragma once

#include <stdint.h>

static inline double ot_larger(double a, double b) { return a > b ? a : b; }
static inline double ot_smaller(double a, double b) { return a < b ? a : b; }

static inline int64_t ot_larger_whole(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ot_smaller_whole(int64_t a, int64_t b) { return a < b ? a : b; }
