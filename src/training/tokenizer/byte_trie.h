// SPDX-License-Identifier: Apache-2.0
// A trie over bytes: finds which of many texts start at a position. Children are found through one
// open-addressing table over (node, byte), so a step costs one lookup for any number of children.
// The struct is open for the two functions that loops over text call.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ot_byte_trie {
  uint64_t *slots;  // [mask + 1] node << 32 | byte << 24 | child; 0 empty, as no child is node 0
  uint64_t mask;
  int32_t *values;  // [num_nodes] of the text that ends there, -1: none; node 0 is the root
  bool *inner;      // [num_nodes] whether longer texts continue from there
  int64_t num_nodes;
  int64_t capacity;
} ot_byte_trie;

// Create a zeroed trie before use, and release it after use.
ot_status ot_byte_trie_create(ot_byte_trie *trie);
void ot_byte_trie_release(ot_byte_trie *trie);

// The node where `text` [length] ends, created if missing.
ot_status ot_byte_trie_add(ot_byte_trie *trie, const uint8_t *text, int64_t length, int64_t *node);

static inline uint64_t ot_byte_trie_slot(const ot_byte_trie *trie, uint64_t key) {
  uint64_t hash = key * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  return hash & trie->mask;
}

// The child of `node` by `byte`, or -1.
static inline int64_t ot_byte_trie_step(const ot_byte_trie *trie, int64_t node, uint8_t byte) {
  const uint64_t key = (uint64_t)node << 8 | byte;
  uint64_t i = ot_byte_trie_slot(trie, key);
  for (; trie->slots[i] != 0; i = (i + 1) & trie->mask) {
    if (trie->slots[i] >> 24 == key) return (int64_t)(trie->slots[i] & 0xFFFFFF);
  }
  return -1;
}
