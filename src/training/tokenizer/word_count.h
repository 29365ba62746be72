// SPDX-License-Identifier: Apache-2.0
// Counts occurrences of pre-tokens: a hash table from bytes to counts, for BPE training.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_word_count ot_word_count;

typedef struct ot_word {
  const uint8_t *bytes;  // valid until the table is destroyed
  int64_t length;
  int64_t count;
} ot_word;

ot_status ot_word_count_create(ot_word_count **out);
void ot_word_count_destroy(ot_word_count **words);

// Adds `word.count` occurrences of its bytes; copies new ones.
ot_status ot_word_count_add(ot_word_count *words, ot_word word);

// Adds all of `other`.
ot_status ot_word_count_add_all(ot_word_count *words, const ot_word_count *other);

// The words, in unspecified order: [ot_word_count_size].
int64_t ot_word_count_size(const ot_word_count *words);
ot_word ot_word_count_at(const ot_word_count *words, int64_t i);
