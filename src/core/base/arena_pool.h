// SPDX-License-Identifier: Apache-2.0
// Reusable memory of a short-lived arena, for products that are built thousands of times. Blocks
// come from a parent arena and are kept for reuse.
#pragma once

#include "base/arena.h"

enum { OT_POOL_BLOCKS = 4096 };

typedef struct ot_arena_pool {
  ot_arena *parent;
  void *block[OT_POOL_BLOCKS];
  int64_t bytes[OT_POOL_BLOCKS];
  int count, current;
  int64_t used;  // of block[current]
} ot_arena_pool;

// An arena over the blocks of `pool`, from the first one on: allocations of earlier arenas of the
// pool are invalidated. pool->parent must be set.
ot_arena ot_arena_pool_begin(ot_arena_pool *pool);

// Adds `memory`, aligned as an arena's and valid as long as the pool, to its blocks.
void ot_arena_pool_give(ot_arena_pool *pool, void *memory, int64_t bytes);
