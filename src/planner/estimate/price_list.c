// SPDX-License-Identifier: Apache-2.0
// Cache of block costs, found by the hash of their key.
#include "estimate/estimator.h"

static uint64_t hash_of(const ot_candidate *key) {
  const int64_t fields[] = {key->tp,
                            key->pp,
                            key->cp,
                            key->ep,
                            key->etp,
                            key->dp,
                            key->dp_shard,
                            key->zero,
                            key->micro_batch_size,
                            (int64_t)key->pipeline,
                            (int64_t)key->recompute,
                            (int64_t)key->modules,
                            key->no_sequence_parallel,
                            (int64_t)key->crosses};
  uint64_t hash = 0;
  for (int i = 0; i < OT_COUNT(fields); i++) {
    hash = (hash ^ (uint64_t)fields[i]) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

int64_t ot_price_list_find(const ot_price_list *list, const ot_candidate *key) {
  const int64_t found = ot_lookup_find(&list->lookup, hash_of(key));
  const bool same = found >= 0 && ot_candidate_compare(&list->prices[found]->key, key) == 0;
  return same ? found : -1;
}

void ot_price_list_add(ot_price_list *list, ot_prices *prices, ot_arena *arena) {
  list->prices =
      ot_arena_grow(arena, list->prices, list->count, &list->capacity, sizeof(ot_prices *));
  list->lookup.arena = arena;
  ot_lookup_add(&list->lookup, hash_of(&prices->key), list->count);
  list->prices[list->count++] = prices;
}
