// SPDX-License-Identifier: Apache-2.0
// The rotation of the heads of one token, for the kernels of rope and of head norms.
#pragma once

#include "kernels/real.h"
#include "ops/kernel.h"

enum { OT_PAIRS = OT_TILE / 2 };  // rotated together; heads have at most a few hundred

// Pairs [first, first + n) of every head.
typedef struct ot_rotation {
  int64_t first, n;
  ot_real cosine[OT_PAIRS];
  ot_real sine[OT_PAIRS];  // negated for the inverse
} ot_rotation;

// Reads the pairs [r->first, r->first + r->n) at the position of row `row`; sign -1: the inverse.
static inline void ot_rotation_read(const ot_tensor *positions, const ot_tensor *table, int64_t row,
                                    ot_real sign, ot_rotation *r) {
  const int64_t position = ((const int32_t *)positions->data)[row];
  const ot_real *const from =
      (const ot_real *)table->data + (position * table->type.dim[1] + r->first) * 2;
  for (int64_t i = 0; i < r->n; i++) {
    r->cosine[i] = from[2 * i];
    r->sine[i] = sign * from[2 * i + 1];
  }
}

// Rotates the pairs (a[i], b[i]), i < r->n, to (to_a[i], to_b[i]), which may be the same memory.
static inline void ot_rotate(const ot_rotation *r, const ot_real *a, const ot_real *b,
                             ot_real *to_a, ot_real *to_b) {
#pragma omp simd
  for (int64_t i = 0; i < r->n; i++) {
    const ot_real a_i = a[i];
    const ot_real b_i = b[i];
    to_a[i] = a_i * r->cosine[i] - b_i * r->sine[i];
    to_b[i] = b_i * r->cosine[i] + a_i * r->sine[i];
  }
}
