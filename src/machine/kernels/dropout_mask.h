// SPDX-License-Identifier: Apache-2.0
// The random words of dropout masks, many Philox4x32-10 blocks at once so that the loop is
// vectorised. The words are equal to those of ot_rng_philox (base/rng.h).
#pragma once

#include <stdint.h>

#include "base/philox_lanes.h"
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

// The four words of block `index` (c / 4), at word[0..3].
static inline void ot_dropout_block(const ot_dropout_row *row, uint64_t index, uint32_t *word) {
  uint64_t lane[4] = {index, row->position, row->sample & 0xffffffffu, row->sample >> 32};
  ot_philox_lanes(row->key, lane);
  for (int i = 0; i < 4; i++) word[i] = (uint32_t)lane[i];
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
