// SPDX-License-Identifier: Apache-2.0
// The nodes of a search in a heap by their lower bounds. Private to the planner.
#pragma once

#include <stdbool.h>

#include "base/arena.h"

typedef struct ot_search_node {
  double step_s;  // lower bounds
  int64_t peak;
  int group;
  int16_t order,
      shard;         // indices in the group; shard: of those covered, the one with fewest bytes
  int8_t recompute;  // of the space
  int8_t kind;       // of equal bounds, the largest is first
} ot_search_node;

typedef struct ot_search_heap {
  ot_arena *arena;
  bool by_memory;        // the least peak is first; else the shortest step
  ot_stable_list nodes;  // its size must be set
} ot_search_heap;

void ot_search_heap_push(ot_search_heap *heap, const ot_search_node *node);

// The first node, and the same removed; there must be one.
const ot_search_node *ot_search_heap_first(const ot_search_heap *heap);
ot_search_node ot_search_heap_pop(ot_search_heap *heap);
