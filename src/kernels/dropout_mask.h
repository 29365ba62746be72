// SPDX-License-Identifier: Apache-2.0
// The random words of dropout masks, many Philox4x32-10 blocks at once so that the loop is
// vectorised. The words are equal to those of ot_rng_philox (base/rng.h).
#pragma once

#include <stdint.h>

#include "base/rng.h"

// One row of a mask: the words of columns c, c+1, ... are words c % 4 of the blocks at
// counter_low = position << 32 | c / 4, counter_high = sample.
typedef struct ot_dropout_row {
  uint64_t key;  // ot_rng_key
  uint64_t sample;
  uint32_t position;
} ot_dropout_row;

// An element is kept when its word is at least this.
static inline uint32_t ot_dropout_threshold(double probability) {
  return (uint32_t)(probability * 4294967296.0);
}

// The four words of block `index` (c / 4), at word[0..3]. Each word is in the lower half of 64
// bits, whose upper half is ignored, so that the multiplications need no lane shuffles.
static inline void ot_dropout_block(const ot_dropout_row *row, uint64_t index, uint32_t *word) {
  const uint64_t low = 0xffffffffu;
  uint64_t key0 = row->key & low;
  uint64_t key1 = row->key >> 32;
  uint64_t c0 = index;
  uint64_t c1 = row->position;
  uint64_t c2 = row->sample & low;
  uint64_t c3 = row->sample >> 32;
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
  word[0] = (uint32_t)c0;
  word[1] = (uint32_t)c1;
  word[2] = (uint32_t)c2;
  word[3] = (uint32_t)c3;
}

// The words of columns [column, column + n) into `word`, which holds n rounded up to 4; `column` is
// a multiple of 4.
static inline void ot_dropout_words(const ot_dropout_row *row, int64_t column, int64_t n,
                                    uint32_t *word) {
  const uint64_t index = (uint64_t)(column / 4);
  const int64_t blocks = (n + 3) / 4;
#pragma omp simd
  for (int64_t i = 0; i < blocks; i++) ot_dropout_block(row, index + (uint64_t)i, word + 4 * i);
}
