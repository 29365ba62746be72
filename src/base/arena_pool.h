// SPDX-License-Identifier: Apache-2.0
// Memory of one arena that is used again and again: what is built to be looked at once, a thousand
// times over. Blocks come from a parent arena and are kept.
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

// An arena over the blocks of `pool`, from the first one on: what was taken from an earlier arena
// of the pool is gone. pool->parent must be set.
ot_arena ot_arena_pool_begin(ot_arena_pool *pool);
