// SPDX-License-Identifier: Apache-2.0
// Words in an array in order of first occurrence, found by open addressing; their bytes in an
// arena.
#include "tokenizer/word_count.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "host/heap.h"

struct ot_word_count {
  ot_heap heap;
  ot_arena arena;
  ot_word *words;    // [capacity]
  uint64_t *hashes;  // [capacity]
  int64_t size;
  int64_t capacity;
  int32_t *slots;  // [mask + 1] indices into words, -1 empty
  uint64_t mask;
};

// Doubles the capacity (at first 1024 words), with a table of twice as many slots.
static ot_status grow(ot_word_count *w) {
  const int64_t capacity = w->capacity > 0 ? 2 * w->capacity : 1024;
  OT_CHECK(capacity < INT32_MAX, OT_ENVIRONMENT, "more than %lld different words",
           (long long)w->size);
  ot_word *const words = realloc(w->words, (size_t)capacity * sizeof *words);
  if (words) w->words = words;
  uint64_t *const hashes = realloc(w->hashes, (size_t)capacity * sizeof *hashes);
  if (hashes) w->hashes = hashes;
  int32_t *const slots = malloc((size_t)capacity * 2 * sizeof *slots);
  if (!words || !hashes || !slots) {
    free(slots);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%lld words)", (long long)capacity);
  }
  free(w->slots);
  w->slots = slots;
  w->capacity = capacity;
  w->mask = 2 * (uint64_t)capacity - 1;
  memset(slots, -1, (size_t)capacity * 2 * sizeof *slots);
  for (int64_t i = 0; i < w->size; i++) {
    uint64_t slot = w->hashes[i] & w->mask;
    while (slots[slot] >= 0) slot = (slot + 1) & w->mask;
    slots[slot] = (int32_t)i;
  }
  return OT_OK;
}

ot_status ot_word_count_create(ot_word_count **out) {
  *out = NULL;
  ot_word_count *words = calloc(1, sizeof *words);
  OT_CHECK(words, OT_ENVIRONMENT, "out of memory (words)");
  words->arena = ot_heap_arena_create(&words->heap);
  const ot_status status = grow(words);
  if (status != OT_OK) ot_word_count_destroy(&words);
  *out = words;
  return status;
}

void ot_word_count_destroy(ot_word_count **words) {
  if (!*words) return;
  free((*words)->words);
  free((*words)->hashes);
  free((*words)->slots);
  ot_heap_release(&(*words)->heap);
  free(*words);
  *words = NULL;
}

// The slot of `word`, or the empty slot for it.
static uint64_t find_slot(const ot_word_count *w, ot_word word, uint64_t hash) {
  uint64_t slot = hash & w->mask;
  for (; w->slots[slot] >= 0; slot = (slot + 1) & w->mask) {
    const int32_t i = w->slots[slot];
    if (w->hashes[i] == hash && w->words[i].length == word.length &&
        memcmp(w->words[i].bytes, word.bytes, (size_t)word.length) == 0) {
      break;
    }
  }
  return slot;
}

ot_status ot_word_count_add(ot_word_count *words, ot_word word) {
  const uint64_t hash = XXH3_64bits(word.bytes, (size_t)word.length);
  uint64_t slot = find_slot(words, word, hash);
  if (words->slots[slot] >= 0) {
    words->words[words->slots[slot]].count += word.count;
    return OT_OK;
  }
  if (words->size == words->capacity) {
    OT_TRY(grow(words));
    slot = find_slot(words, word, hash);
  }
  word.bytes = (uint8_t *)ot_arena_text(&words->arena, (const char *)word.bytes, word.length);
  words->slots[slot] = (int32_t)words->size;
  words->hashes[words->size] = hash;
  words->words[words->size++] = word;
  return OT_OK;
}

ot_status ot_word_count_add_all(ot_word_count *words, const ot_word_count *other) {
  for (int64_t i = 0; i < other->size; i++) OT_TRY(ot_word_count_add(words, other->words[i]));
  return OT_OK;
}

int64_t ot_word_count_size(const ot_word_count *words) { return words->size; }

ot_word ot_word_count_at(const ot_word_count *words, int64_t i) { return words->words[i]; }
