// SPDX-License-Identifier: Apache-2.0
// A hash table of pairs, lists of words in one pool, and a heap of candidates. A decreased count
// leaves its candidate too high in the heap; it is corrected at the top.
#include "tokenizer/pair_table.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/buffer.h"

typedef struct entry {
  uint64_t pair;
  int64_t count;
  int64_t words;      // head of the list in the pool, -1: none
  int32_t last_word;  // added last, so that a word is listed once
  bool grew;          // since the last settle
} entry;

typedef struct link {
  int64_t next;
  int32_t word;
} link;

typedef struct candidate {
  int64_t count;
  uint64_t pair;
} candidate;

struct ot_pair_table {
  entry *entries;  // [mask + 1], count < 0: empty slot
  uint64_t mask;
  int64_t size;
  ot_buffer pool;        // links
  ot_buffer grown;       // u64 pairs that grew
  ot_buffer heap;        // candidates
  ot_token_list answer;  // words of the last take
};

static uint64_t slot_of(const ot_pair_table *t, uint64_t pair) {
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  uint64_t i = hash & t->mask;
  while (t->entries[i].count >= 0 && t->entries[i].pair != pair) i = (i + 1) & t->mask;
  return i;
}

static ot_status grow(ot_pair_table *t) {
  entry *const old = t->entries;
  const uint64_t old_slots = old ? t->mask + 1 : 0;
  const uint64_t slots = old ? 2 * old_slots : 1 << 16;
  entry *const entries = malloc(slots * sizeof *entries);
  OT_CHECK(entries, OT_ENVIRONMENT, "out of memory (%llu pairs)", (unsigned long long)slots);
  for (uint64_t i = 0; i < slots; i++) entries[i] = (entry){.count = -1};
  t->entries = entries;
  t->mask = slots - 1;
  for (uint64_t i = 0; i < old_slots; i++) {
    if (old[i].count >= 0) entries[slot_of(t, old[i].pair)] = old[i];
  }
  free(old);
  return OT_OK;
}

ot_status ot_pair_table_create(ot_pair_table **out) {
  *out = NULL;
  ot_pair_table *table = calloc(1, sizeof *table);
  OT_CHECK(table, OT_ENVIRONMENT, "out of memory (pairs)");
  const ot_status status = grow(table);
  if (status != OT_OK) ot_pair_table_destroy(&table);
  *out = table;
  return status;
}

void ot_pair_table_destroy(ot_pair_table **table) {
  ot_pair_table *const t = *table;
  if (!t) return;
  free(t->entries);
  ot_buffer_release(&t->pool);
  ot_buffer_release(&t->grown);
  ot_buffer_release(&t->heap);
  ot_token_list_release(&t->answer);
  free(t);
  *table = NULL;
}

static ot_status list_word(ot_pair_table *t, entry *e, int32_t word) {
  if (e->words >= 0 && e->last_word == word) return OT_OK;
  const link added = {.next = e->words, .word = word};
  e->words = t->pool.length / (int64_t)sizeof added;
  e->last_word = word;
  return ot_buffer_append(&t->pool, &added, sizeof added);
}

ot_status ot_pair_table_change(ot_pair_table *table, uint64_t pair, int64_t delta, int32_t word) {
  uint64_t i = slot_of(table, pair);
  if (table->entries[i].count < 0) {
    if (2 * (uint64_t)(table->size + 1) > table->mask) {
      OT_TRY(grow(table));
      i = slot_of(table, pair);
    }
    table->entries[i] = (entry){.pair = pair, .words = -1};
    table->size++;
  }
  entry *const e = &table->entries[i];
  e->count += delta;
  // The pair being merged was taken with a count of 0 and may fall below.
  if (e->count < 0) e->count = 0;
  if (delta <= 0) return OT_OK;
  OT_TRY(list_word(table, e, word));
  if (e->grew) return OT_OK;
  e->grew = true;
  return ot_buffer_append(&table->grown, &pair, sizeof pair);
}

// ---- the heap ----

static bool comes_first(candidate a, candidate b) {
  return a.count != b.count ? a.count > b.count : a.pair < b.pair;
}

static ot_status push(ot_pair_table *t, candidate value) {
  OT_TRY(ot_buffer_append(&t->heap, &value, sizeof value));
  candidate *const heap = (candidate *)(void *)t->heap.data;
  int64_t i = t->heap.length / (int64_t)sizeof value - 1;
  for (; i > 0 && comes_first(value, heap[(i - 1) / 2]); i = (i - 1) / 2) {
    heap[i] = heap[(i - 1) / 2];
  }
  heap[i] = value;
  return OT_OK;
}

static candidate pop(ot_pair_table *t) {
  candidate *const heap = (candidate *)(void *)t->heap.data;
  const candidate top = heap[0];
  t->heap.length -= (int64_t)sizeof top;
  const int64_t count = t->heap.length / (int64_t)sizeof top;
  const candidate value = heap[count];
  int64_t i = 0;
  for (;;) {
    int64_t child = 2 * i + 1;
    if (child >= count) break;
    if (child + 1 < count && comes_first(heap[child + 1], heap[child])) child++;
    if (!comes_first(heap[child], value)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = value;
  return top;
}

ot_status ot_pair_table_settle(ot_pair_table *table) {
  const int64_t count = table->grown.length / (int64_t)sizeof(uint64_t);
  for (int64_t i = 0; i < count; i++) {
    uint64_t pair;
    memcpy(&pair, table->grown.data + i * (int64_t)sizeof pair, sizeof pair);
    entry *const e = &table->entries[slot_of(table, pair)];
    e->grew = false;
    if (e->count > 0) OT_TRY(push(table, (candidate){.count = e->count, .pair = pair}));
  }
  table->grown.length = 0;
  return OT_OK;
}

static ot_status answer_words(ot_pair_table *t, entry *e) {
  t->answer.count = 0;
  for (int64_t i = e->words; i >= 0;) {
    const link at = ((const link *)(const void *)t->pool.data)[i];
    OT_TRY(ot_token_list_append(&t->answer, &at.word, 1));
    i = at.next;
  }
  e->words = -1;
  e->count = 0;
  return OT_OK;
}

ot_status ot_pair_table_take(ot_pair_table *table, uint64_t *pair, const int32_t **words,
                             int64_t *num_words) {
  *num_words = 0;
  while (table->heap.length > 0) {
    const candidate top = pop(table);
    entry *const e = &table->entries[slot_of(table, top.pair)];
    if (e->count == top.count && e->words >= 0) {
      OT_TRY(answer_words(table, e));
      *pair = top.pair;
      *words = table->answer.ids;
      *num_words = table->answer.count;
      return OT_OK;
    }
    // Too high: push again with its true count. Too low: a higher candidate is in the heap.
    if (e->count < top.count && e->count > 0) {
      OT_TRY(push(table, (candidate){.count = e->count, .pair = top.pair}));
    }
  }
  return OT_OK;
}
