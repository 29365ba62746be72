// SPDX-License-Identifier: Apache-2.0
// Open addressing with linear probing, in a table that is at most half full.
#include "estimate/lookup.h"

enum { FIRST_CAPACITY = 64 };

// The slot of `key`, or the free slot for it.
static int64_t place_of(const ot_lookup *lookup, uint64_t key) {
  const uint64_t mask = (uint64_t)lookup->capacity - 1;
  // Fibonacci hashing (2^64 over the golden ratio) separates neighbouring keys.
  uint64_t place = (key * 0x9e3779b97f4a7c15ULL >> 20) & mask;
  while (lookup->indices[place] >= 0 && lookup->keys[place] != key) place = (place + 1) & mask;
  return (int64_t)place;
}

int64_t ot_lookup_find(const ot_lookup *lookup, uint64_t key) {
  return lookup->capacity > 0 ? lookup->indices[place_of(lookup, key)] : -1;
}

static void grow(ot_lookup *lookup) {
  const ot_lookup old = *lookup;
  lookup->capacity = old.capacity > 0 ? 2 * old.capacity : FIRST_CAPACITY;
  lookup->count = 0;
  lookup->keys = ot_arena_array(lookup->arena, lookup->capacity, sizeof(uint64_t));
  lookup->indices = ot_arena_array(lookup->arena, lookup->capacity, sizeof(int64_t));
  for (int64_t i = 0; i < lookup->capacity; i++) lookup->indices[i] = -1;
  for (int64_t i = 0; i < old.capacity; i++) {
    if (old.indices[i] >= 0) ot_lookup_add(lookup, old.keys[i], old.indices[i]);
  }
}

void ot_lookup_add(ot_lookup *lookup, uint64_t key, int64_t index) {
  if (2 * (lookup->count + 1) > lookup->capacity) grow(lookup);
  const int64_t place = place_of(lookup, key);
  if (lookup->indices[place] >= 0) return;
  lookup->keys[place] = key;
  lookup->indices[place] = index;
  lookup->count++;
}
