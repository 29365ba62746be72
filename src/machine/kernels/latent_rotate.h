// SPDX-License-Identifier: Apache-2.0
// The rotation of one head of latent attention, for its kernels.
#pragma once

#include "kernels/real.h"
#include "ops/kernel.h"

// A token's cosines and sines: pairs [P/2][2] at `position` of the table.
static inline const ot_real *ot_latent_angles(const ot_tensor *positions, const ot_tensor *table,
                                              int64_t row) {
  const int64_t position = ((const int32_t *)positions->data)[row];
  return (const ot_real *)table->data + position * table->type.dim[1] * 2;
}

// to [P] = from [P] rotated; `from` has pairs as in the attributes, `to` has halves.
static inline void ot_latent_rotate(const ot_op_attributes *a, const ot_real *angles,
                                    const ot_real *from, ot_real *to) {
  const int64_t half = a->rotary_dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const ot_real x = a->interleaved ? from[2 * i] : from[i];
    const ot_real y = a->interleaved ? from[2 * i + 1] : from[i + half];
    to[i] = x * angles[2 * i] - y * angles[2 * i + 1];
    to[i + half] = y * angles[2 * i] + x * angles[2 * i + 1];
  }
}

// The transpose: from [P] in halves, to [P] as in the attributes.
static inline void ot_latent_rotate_back(const ot_op_attributes *a, const ot_real *angles,
                                         const ot_real *from, ot_real *to) {
  const int64_t half = a->rotary_dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const ot_real x = from[i] * angles[2 * i] + from[i + half] * angles[2 * i + 1];
    const ot_real y = from[i + half] * angles[2 * i] - from[i] * angles[2 * i + 1];
    to[a->interleaved ? 2 * i : i] = x;
    to[a->interleaved ? 2 * i + 1 : i + half] = y;
  }
}
