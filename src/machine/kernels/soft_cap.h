// SPDX-License-Identifier: Apache-2.0
// Soft caps: cap * tanh(x / cap), for scores and logits (Gemma Team 2024, Gemma 2, sec. 2). A cap
// of 0 disables it.
#pragma once

#include "kernels/real.h"
#include "kernels/vector_math.h"

static inline void ot_soft_cap(ot_real *restrict row, int64_t n, ot_real cap) {
  if (cap == 0) return;
  const ot_real inverse = 1 / cap;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) row[i] = cap * OT_KERNEL(ot_tanh)(row[i] * inverse);
}

// The derivative 1 - tanh^2 where the capped value is `capped`. The product form avoids
// cancellation.
static inline ot_real ot_soft_cap_slope(ot_real capped, ot_real cap) {
  if (cap == 0) return 1;
  return (cap - capped) * (cap + capped) / (cap * cap);
}
