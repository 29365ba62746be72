// SPDX-License-Identifier: Apache-2.0
// Nodes are numbered in order of creation; table and nodes grow by doubling.
#include "tokenizer/byte_trie.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 24 };  // a child has 24 bits in its slot

static ot_status grow_slots(ot_byte_trie *t) {
  const uint64_t old_slots = t->slots ? t->mask + 1 : 0;
  const uint64_t slots = old_slots > 0 ? 2 * old_slots : 256;
  uint64_t *const old = t->slots;
  uint64_t *const table = calloc(slots, sizeof *table);
  OT_CHECK(table, OT_ENVIRONMENT, "out of memory (trie of %lld nodes)", (long long)t->num_nodes);
  t->slots = table;
  t->mask = slots - 1;
  for (uint64_t i = 0; i < old_slots; i++) {
    if (old[i] == 0) continue;
    uint64_t at = ot_byte_trie_slot(t, old[i] >> 24);
    while (table[at] != 0) at = (at + 1) & t->mask;
    table[at] = old[i];
  }
  free(old);
  return OT_OK;
}

static ot_status grow_nodes(ot_byte_trie *t) {
  const int64_t capacity = t->capacity > 0 ? 2 * t->capacity : 128;
  OT_CHECK(t->num_nodes < MAX_NODES, OT_USAGE, "the tokens do not fit into a trie");
  int32_t *const values = realloc(t->values, (size_t)capacity * sizeof *values);
  if (values) t->values = values;
  bool *const inner = realloc(t->inner, (size_t)capacity * sizeof *inner);
  if (inner) t->inner = inner;
  OT_CHECK(values && inner, OT_ENVIRONMENT, "out of memory (trie of %lld nodes)",
           (long long)capacity);
  t->capacity = capacity;
  return OT_OK;
}

static ot_status add_node(ot_byte_trie *t, int64_t *node) {
  if (t->num_nodes == t->capacity) OT_TRY(grow_nodes(t));
  if (2 * (uint64_t)(t->num_nodes + 1) > t->mask) OT_TRY(grow_slots(t));
  *node = t->num_nodes++;
  t->values[*node] = -1;
  t->inner[*node] = false;
  return OT_OK;
}

ot_status ot_byte_trie_create(ot_byte_trie *trie) {
  int64_t root;
  OT_TRY(grow_slots(trie));
  return add_node(trie, &root);
}

void ot_byte_trie_release(ot_byte_trie *trie) {
  free(trie->slots);
  free(trie->values);
  free(trie->inner);
  *trie = (ot_byte_trie){0};
}

ot_status ot_byte_trie_add(ot_byte_trie *trie, const uint8_t *text, int64_t length, int64_t *node) {
  *node = 0;
  for (int64_t i = 0; i < length; i++) {
    const int64_t parent = *node;
    *node = ot_byte_trie_step(trie, parent, text[i]);
    if (*node >= 0) continue;
    OT_TRY(add_node(trie, node));
    trie->inner[parent] = true;
    const uint64_t key = (uint64_t)parent << 8 | text[i];
    uint64_t at = ot_byte_trie_slot(trie, key);
    while (trie->slots[at] != 0) at = (at + 1) & trie->mask;
    trie->slots[at] = key << 24 | (uint64_t)*node;
  }
  return OT_OK;
}
