// SPDX-License-Identifier: Apache-2.0
// The angles of rotated pairs, for the kernels of rope and of head norms.
#pragma once

#include "kernels/cuda/kernel.cuh"

// The cosines and sines of pairs [pair, pair + N) of a head of `half` pairs at `position`. N and half
// are such that the address is a multiple of 16 if N > 1.
template <int N, class R>
__device__ __forceinline__ void ot_load_angles(const R *table, int64_t position, int half, int pair,
                                               R (&cosine)[N], R (&sine)[N]) {
  constexpr int PIECE = N > 1 ? 16 / (int)sizeof(R) : 2;
  const R *const angles = table + (position * half + pair) * 2;
#pragma unroll
  for (int k = 0; k < 2 * N; k += PIECE) {
    R piece[PIECE];
    ot_load(angles + k, piece);
#pragma unroll
    for (int j = 0; j < PIECE; j += 2) {
      cosine[(k + j) / 2] = piece[j];
      sine[(k + j) / 2] = piece[j + 1];
    }
  }
}
