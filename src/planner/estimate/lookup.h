// SPDX-License-Identifier: Apache-2.0
// Hash table from keys to array indices, which finds thousands of cached costs in constant time.
// Private to the planner.
#pragma once

#include <stdint.h>

#include "base/arena.h"

typedef struct ot_lookup {
  ot_arena *arena;
  int64_t count, capacity;  // capacity: a power of two, 0 before the first entry
  uint64_t *keys;           // [capacity]
  int64_t *indices;         // [capacity] -1 = free
} ot_lookup;

// The index added with `key`, or -1. Keys are hashes: the caller compares the entry found.
int64_t ot_lookup_find(const ot_lookup *lookup, uint64_t key);

// `index` >= 0. A duplicate key keeps its first index. lookup->arena must be set.
void ot_lookup_add(ot_lookup *lookup, uint64_t key, int64_t index);
