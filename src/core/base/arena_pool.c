// SPDX-License-Identifier: Apache-2.0
// Sub-allocates the arena's blocks from larger ones, in allocation order.
#include "base/arena_pool.h"

#include "base/status.h"

enum { LEAST_BYTES = 1 << 21, ALIGNMENT = 64 };

void ot_arena_pool_give(ot_arena_pool *pool, void *memory, int64_t bytes) {
  OT_ASSERT(pool->count < OT_POOL_BLOCKS);
  pool->bytes[pool->count] = bytes;
  pool->block[pool->count++] = memory;
}

static void grow(ot_arena_pool *pool, int64_t bytes) {
  const int64_t taken = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
  ot_arena_pool_give(pool, ot_arena_take(pool->parent, taken), taken);
}

static void *next_block(void *context, int64_t bytes) {
  ot_arena_pool *const pool = context;
  const int64_t needed = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  while (pool->current < pool->count && pool->used + needed > pool->bytes[pool->current]) {
    pool->current++;
    pool->used = 0;
  }
  if (pool->current == pool->count) grow(pool, needed);
  unsigned char *const block = (unsigned char *)pool->block[pool->current] + pool->used;
  pool->used += needed;
  return block;
}

ot_arena ot_arena_pool_begin(ot_arena_pool *pool) {
  pool->current = 0;
  pool->used = 0;
  return ot_arena_from(next_block, pool);
}
