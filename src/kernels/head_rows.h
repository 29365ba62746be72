// SPDX-License-Identifier: Apache-2.0
// One row of logits, for the kernels of the head: exponentials and their sum, and the loss of a
// target in nats. Sums are accumulated in the compute type over short runs and combined in float64.
#pragma once

#include <string.h>

#include "kernels/real.h"
#include "kernels/soft_cap.h"
#include "kernels/vector_math.h"

// row = exp(row - largest); returns the sum, accumulated by tiles. With a soft cap each exponential
// is then multiplied by the cap's slope.
static inline double ot_row_exponentials(ot_real *restrict row, int64_t n, ot_real largest,
                                         ot_real cap) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += OT_TILE) {
    const int64_t end = n - begin < OT_TILE ? n : begin + OT_TILE;
    ot_real logits[OT_TILE];
    if (cap > 0) memcpy(logits, row + begin, (size_t)(end - begin) * sizeof *row);
    ot_real tile = 0;
#pragma omp simd reduction(+ : tile)
    for (int64_t i = begin; i < end; i++) {
      row[i] = OT_KERNEL(ot_exp)(row[i] - largest);
      tile += row[i];
    }
    sum += (double)tile;
    if (cap == 0) continue;
    for (int64_t i = begin; i < end; i++) row[i] *= ot_soft_cap_slope(logits[i - begin], cap);
  }
  return sum;
}

// log(sum exp) - logit; `sum` is of exponentials relative to the largest logit.
static inline double ot_nats_of(double logit, double largest, double sum) {
  return ot_log_f64(sum) + (largest - logit);
}
