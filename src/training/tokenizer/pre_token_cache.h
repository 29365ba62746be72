// SPDX-License-Identifier: Apache-2.0
// Short pre-tokens and their tokens: a direct-mapped table of slots of half a cache line. Natural
// text repeats its pre-tokens so often that most are found here without the model. Inline, because
// it is called for every four or five bytes of text.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum { OT_PRE_TOKEN_BYTES = 16, OT_PRE_TOKEN_IDS = 3, OT_PRE_TOKEN_SLOT_BITS = 16 };

typedef struct ot_pre_token_slot {
  uint64_t low, high;  // the pre-token, zero-padded
  uint8_t length;      // 0: empty
  uint8_t count;
  int32_t ids[OT_PRE_TOKEN_IDS];
} ot_pre_token_slot;

typedef struct ot_pre_token_cache {
  ot_pre_token_slot slots[1 << OT_PRE_TOKEN_SLOT_BITS];
} ot_pre_token_cache;

ot_status ot_pre_token_cache_create(ot_pre_token_cache **out);
void ot_pre_token_cache_destroy(ot_pre_token_cache **cache);

// The first `length` bytes at `text` (1 to 8) as a number, without reading beyond them.
static inline uint64_t ot_pre_token_load(const uint8_t *text, int64_t length) {
  if (length >= 4) {
    uint32_t first, last;
    memcpy(&first, text, 4);
    memcpy(&last, text + length - 4, 4);
    return first | (uint64_t)last << (8 * (length - 4));
  }
  return text[0] | (uint64_t)text[length / 2] << (8 * (length / 2)) |
         (uint64_t)text[length - 1] << (8 * (length - 1));
}

// The slot of the pre-token at `text` [length in 1..OT_PRE_TOKEN_BYTES]. Its `length` is set if the
// pre-token is cached; else it is 0 and the slot can be filled.
static inline ot_pre_token_slot *ot_pre_token_cache_slot(ot_pre_token_cache *cache,
                                                         const uint8_t *text, int64_t length) {
  const uint64_t low = ot_pre_token_load(text, length < 8 ? length : 8);
  const uint64_t high = length > 8 ? ot_pre_token_load(text + 8, length - 8) : 0;
  uint64_t hash = (low ^ (uint64_t)length << 56) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 32 ^ high) * 0xD6E8FEB86659FD93u;
  ot_pre_token_slot *const slot = &cache->slots[hash >> (64 - OT_PRE_TOKEN_SLOT_BITS)];
  if (slot->low == low && slot->high == high && slot->length == length) return slot;
  slot->low = low;
  slot->high = high;
  slot->length = 0;
  return slot;
}

static inline void ot_pre_token_slot_fill(ot_pre_token_slot *slot, int64_t length,
                                          const int32_t *ids, int64_t count) {
  memcpy(slot->ids, ids, (size_t)count * sizeof *ids);
  slot->length = (uint8_t)length;
  slot->count = (uint8_t)count;
}
