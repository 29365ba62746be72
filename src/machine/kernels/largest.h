// SPDX-License-Identifier: Apache-2.0
// Vectorised maxima of rows: clang does not vectorise a floating-point reduction(max), so the lanes
// are explicit.
#pragma once

#include "kernels/real.h"

enum { OT_LARGEST_LANES = 64 };

// The largest of row [n], n > 0; NaN when row[0] is NaN, other NaNs are ignored.
static inline ot_real ot_row_largest(const ot_real *row, int64_t n) {
  ot_real lane[OT_LARGEST_LANES];
  for (int l = 0; l < OT_LARGEST_LANES; l++) lane[l] = row[0];
  int64_t i = 0;
  for (; i + OT_LARGEST_LANES <= n; i += OT_LARGEST_LANES) {
    for (int l = 0; l < OT_LARGEST_LANES; l++) {
      lane[l] = row[i + l] > lane[l] ? row[i + l] : lane[l];
    }
  }
  ot_real largest = lane[0];
  for (int l = 1; l < OT_LARGEST_LANES; l++) largest = lane[l] > largest ? lane[l] : largest;
  for (; i < n; i++) largest = row[i] > largest ? row[i] : largest;
  return largest;
}

// The largest magnitude in row [n], 0 for n = 0; infinity when there is a NaN.
static inline ot_real ot_row_largest_size(const ot_real *row, int64_t n) {
  ot_real lane[OT_LARGEST_LANES] = {0}, strange[OT_LARGEST_LANES] = {0};
  int64_t i = 0;
  for (; i + OT_LARGEST_LANES <= n; i += OT_LARGEST_LANES) {
    for (int l = 0; l < OT_LARGEST_LANES; l++) {
      const ot_real size = row[i + l] < 0 ? -row[i + l] : row[i + l];
      lane[l] = size > lane[l] ? size : lane[l];
      strange[l] += row[i + l] * 0;
    }
  }
  ot_real largest = lane[0], sum = strange[0];
  for (int l = 1; l < OT_LARGEST_LANES; l++) {
    largest = lane[l] > largest ? lane[l] : largest;
    sum += strange[l];
  }
  for (; i < n; i++) {
    const ot_real size = row[i] < 0 ? -row[i] : row[i];
    largest = size > largest ? size : largest;
    sum += row[i] * 0;
  }
  return sum == 0 ? largest : (ot_real)__builtin_inf();
}
