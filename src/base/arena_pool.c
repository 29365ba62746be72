// SPDX-License-Identifier: Apache-2.0
// Hands blocks out in the order in which they were taken; one that is too small is passed over.
#include "base/arena_pool.h"

#include "base/status.h"

static void *next_block(void *context, int64_t bytes) {
  ot_arena_pool *const pool = context;
  while (pool->next < pool->count && pool->bytes[pool->next] < bytes) pool->next++;
  if (pool->next == pool->count) {
    OT_ASSERT(pool->count < OT_POOL_BLOCKS);
    pool->bytes[pool->count] = bytes;
    pool->block[pool->count] = ot_arena_take(pool->parent, bytes);
    pool->count++;
  }
  return pool->block[pool->next++];
}

ot_arena ot_arena_pool_begin(ot_arena_pool *pool) {
  pool->next = 0;
  return ot_arena_from(next_block, pool);
}
