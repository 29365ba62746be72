// SPDX-License-Identifier: Apache-2.0
// A stable sort, so that equal keys keep their order on every host (qsort does not guarantee it).
#pragma once

#include <stdint.h>

#include "base/arena.h"

typedef struct ot_ordering {
  // <0, 0, >0 when `a` sorts before, equal to or after `b`; must be a total order.
  int (*compare)(const void *a, const void *b, const void *context);
  const void *context;  // passed to `compare`
} ot_ordering;

// Sorts `array` [count] of `size`-byte elements in place; equal elements keep their order.
// Allocates count * size bytes from `arena`. O(count log count).
void ot_sort(void *array, int64_t count, int64_t size, ot_ordering ordering, ot_arena *arena);

// Sorts `values` [count] upwards; they must not be NaN.
void ot_sort_reals(double *values, int64_t count, ot_arena *arena);

// The median of `values` [count], count >= 1, which are sorted; of an even number the mean of both
// in the middle.
double ot_median(double *values, int64_t count, ot_arena *arena);
