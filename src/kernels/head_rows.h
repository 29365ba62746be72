// SPDX-License-Identifier: Apache-2.0
// One row of logits, for the kernels of the head: exponentials and their sum, and the nats of a
// target from them. Sums are made in the compute type by short runs and joined in float64.
#pragma once

#include "kernels/real.h"
#include "kernels/vector_math.h"

// row = exp(row - largest); returns the sum, made by tiles.
static inline double ot_row_exponentials(ot_real *restrict row, int64_t n, ot_real largest) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += OT_TILE) {
    const int64_t end = n - begin < OT_TILE ? n : begin + OT_TILE;
    ot_real tile = 0;
#pragma omp simd reduction(+ : tile)
    for (int64_t i = begin; i < end; i++) {
      row[i] = OT_KERNEL(ot_exp)(row[i] - largest);
      tile += row[i];
    }
    sum += (double)tile;
  }
  return sum;
}

// log(sum exp) - logit, where the sum is of exponentials relative to the largest logit.
static inline double ot_nats_of(double logit, double largest, double sum) {
  return ot_log_f64(sum) + (largest - logit);
}
