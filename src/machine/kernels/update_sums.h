// SPDX-License-Identifier: Apache-2.0
// Metrics of an optimizer update: the squared norms of update and weights, in float64, a pair per
// block of elements and their total in block order.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/kernel.h"

typedef struct ot_update_sums {
  double update;  // sum of d^2
  double weight;  // sum of p^2 after the update
} ot_update_sums;

// True when the step's gradients, and so the clip factor, are not finite: nothing is updated. Then
// `stats` [2] (or null) is set to zero.
static inline bool ot_update_is_skipped(const ot_kernel_call *call, double *stats) {
  const double factor = ((const double *)call->in[1].data)[OT_SCALAR_CLIP_FACTOR];
  if (factor - factor == 0) return false;
  if (stats) stats[0] = stats[1] = 0;
  return true;
}

// Puts the totals of `sums` [blocks] into `stats` [2]; does nothing when stats is null.
static inline void ot_update_sums_total(const ot_update_sums *sums, int64_t blocks, double *stats) {
  ot_update_sums total = {0};
  if (!stats) return;
  for (int64_t block = 0; block < blocks; block++) {
    total.update += sums[block].update;
    total.weight += sums[block].weight;
  }
  stats[0] = total.update;
  stats[1] = total.weight;
}
