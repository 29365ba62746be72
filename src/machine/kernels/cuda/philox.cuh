// SPDX-License-Identifier: Apache-2.0
// The random words of dropout masks on a GPU, equal to those of ot_rng_philox (base/rng.h).
#pragma once

#include <stdint.h>

#include "kernels/cuda/machine.cuh"

// The four words of the block at counter_low = position << 32 | index, counter_high = sample, for a
// key from ot_rng_key.
__device__ __forceinline__ void ot_philox(uint64_t key, uint64_t sample, uint32_t position,
                                          uint32_t index, uint32_t (&word)[4]) {
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t c0 = index, c1 = position, c2 = (uint32_t)sample, c3 = (uint32_t)(sample >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint32_t high0 = __umulhi(0xd2511f53u, c0), low0 = 0xd2511f53u * c0;
    const uint32_t high1 = __umulhi(0xcd9e8d57u, c2), low1 = 0xcd9e8d57u * c2;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  word[0] = c0;
  word[1] = c1;
  word[2] = c2;
  word[3] = c3;
}
