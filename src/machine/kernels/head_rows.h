// SPDX-License-Identifier: Apache-2.0
// One row of logits, for the kernels of the head: exponentials and their sum, and the loss of a
// target in nats. Sums are accumulated in the compute type over short runs and combined in float64.
#pragma once

#include <string.h>

#include "kernels/real.h"
#include "kernels/soft_cap.h"
#include "kernels/vector_math.h"
#include "ops/kernel.h"

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

// The weighted targets of a row; without weights the one of weight 1.
typedef struct ot_head_targets {
  int64_t num;
  const int32_t *ids;    // [num]
  const float *weights;  // [num], or null
} ot_head_targets;

// The targets of row `row`: ids? [R, K] with weights? [R, K], or else targets [R].
static inline ot_head_targets ot_head_targets_of(const ot_tensor *ids, const ot_tensor *weights,
                                                 const ot_tensor *targets, int64_t row) {
  if (!ids->data) return (ot_head_targets){1, (const int32_t *)targets->data + row, NULL};
  const int64_t K = ids->type.dim[1];
  return (ot_head_targets){K, (const int32_t *)ids->data + row * K,
                           (const float *)weights->data + row * K};
}

static inline double ot_head_weight(const ot_head_targets *to, int64_t k) {
  return to->weights ? (double)to->weights[k] : 1;
}

// log(sum exp) - logit; `sum` is of exponentials relative to the largest logit.
static inline double ot_nats_of(double logit, double largest, double sum) {
  return ot_log_f64(sum) + (largest - logit);
}

// The same for weighted targets: the sum of their weights, and of their weighted logits.
static inline double ot_weighted_nats_of(double weight, double pulled, double largest, double sum) {
  return weight * ot_log_f64(sum) + (weight * largest - pulled);
}
