// SPDX-License-Identifier: Apache-2.0
// Adjacent pairs of tokens with their counts and the words that contain them, most frequent first:
// the data structure of BPE training.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ot_pair_table ot_pair_table;

ot_status ot_pair_table_create(ot_pair_table **out);
void ot_pair_table_destroy(ot_pair_table **table);

static inline uint64_t ot_pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}
static inline int32_t ot_pair_left(uint64_t pair) { return (int32_t)(pair >> 32); }
static inline int32_t ot_pair_right(uint64_t pair) { return (int32_t)(uint32_t)pair; }

// Changes the count of `pair` by `delta`; if it grows, `word` contains it.
ot_status ot_pair_table_change(ot_pair_table *table, uint64_t pair, int64_t delta, int32_t word);

// After a series of changes: pairs with a higher count become candidates again.
ot_status ot_pair_table_settle(ot_pair_table *table);

// Removes the most frequent pair, on ties the smallest, and returns its words in `words`
// [num_words], in the table's memory until the next call; false if no pair is left. A word may no
// longer contain the pair.
ot_status ot_pair_table_take(ot_pair_table *table, uint64_t *pair, const int32_t **words,
                             int64_t *num_words);
