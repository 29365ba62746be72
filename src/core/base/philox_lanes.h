// SPDX-License-Identifier: Apache-2.0
// A block of Philox4x32-10 with the words of ot_rng_philox (base/rng.h), for loops that the
// compiler vectorises: each word is the lower half of a 64-bit lane whose upper half is ignored, so
// that the multiplications need no lane shuffles.
#pragma once

#include <stdint.h>

// Replaces `counter` [4], whose first and third upper halves are ignored, by the block's words.
//   key  of ot_rng_key
static inline void ot_philox_lanes(uint64_t key, uint64_t counter[4]) {
  const uint64_t low = 0xffffffffu;
  uint64_t key0 = key & low, key1 = key >> 32;
  uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (c0 & low) * 0xd2511f53u;
    const uint64_t product1 = (c2 & low) * 0xcd9e8d57u;
    c0 = product1 >> 32 ^ c1 ^ key0;
    c1 = product1;
    c2 = product0 >> 32 ^ c3 ^ key1;
    c3 = product0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  counter[0] = c0;
  counter[1] = c1;
  counter[2] = c2;
  counter[3] = c3;
}
