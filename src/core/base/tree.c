// SPDX-License-Identifier: Apache-2.0
// Building and searching trees.
#include "base/tree.h"

#include <stddef.h>

#include "base/number.h"
#include "base/status.h"
#include "base/text.h"

ot_node *ot_node_create(ot_arena *arena, ot_node_kind kind) {
  ot_node *const node = ot_arena_take(arena, sizeof *node);
  node->kind = kind;
  return node;
}

ot_node *ot_node_word(ot_arena *arena, const char *text) {
  ot_node *const node = ot_node_create(arena, OT_NODE_SCALAR);
  node->text = ot_arena_text(arena, text, ot_text_length(text));
  return node;
}

ot_node *ot_node_text(ot_arena *arena, const char *text) {
  ot_node *const node = ot_node_word(arena, text);
  node->quoted = true;
  return node;
}

ot_node *ot_node_integer(ot_arena *arena, int64_t value) {
  return ot_node_word(arena, ot_arena_format(arena, "%lld", (long long)value));
}

ot_node *ot_node_real(ot_arena *arena, double value) {
  char text[64];
  const int64_t length = ot_number_print_shortest(text, sizeof text, value);
  bool whole = true;
  for (int64_t i = 0; i < length; i++) {
    if (text[i] != '-' && (text[i] < '0' || text[i] > '9')) whole = false;
  }
  // Typed readers, such as Python, would read 8 as an integer.
  if (whole) ot_text_format(text + length, (int64_t)sizeof text - length, ".0");
  return ot_node_word(arena, text);
}

ot_node *ot_node_bool(ot_arena *arena, bool value) {
  return ot_node_word(arena, value ? "true" : "false");
}

ot_node *ot_node_append(ot_node *list, ot_node *child) {
  child->next = NULL;
  if (list->last) list->last->next = child;
  if (!list->first) list->first = child;
  list->last = child;
  return child;
}

ot_node *ot_node_put(ot_arena *arena, ot_node *map, const char *key, ot_node *child) {
  child->key = ot_arena_text(arena, key, ot_text_length(key));
  return ot_node_append(map, child);
}

ot_node *ot_node_child(const ot_node *map, const char *key) {
  for (ot_node *child = map->first; child; child = child->next) {
    if (child->key && ot_text_equal(child->key, key)) return child;
  }
  return NULL;
}

ot_node *ot_node_at(const ot_node *parent, int64_t index) {
  ot_node *child = parent->first;
  for (int64_t i = 0; child && i < index; i++) child = child->next;
  return child;
}

int64_t ot_node_count(const ot_node *parent) {
  int64_t count = 0;
  for (const ot_node *child = parent->first; child; child = child->next) count++;
  return count;
}

// The child of `parent` named by the first segment of `path`; `rest` is what follows it.
static ot_node *step(const ot_node *parent, const char *path, const char **rest) {
  int64_t length = 0;
  while (path[length] != '\0' && path[length] != '.') length++;
  *rest = path[length] == '.' ? path + length + 1 : NULL;
  char segment[128];
  if (length >= (int64_t)sizeof segment) return NULL;
  ot_text_format(segment, sizeof segment, "%.*s", (int)length, path);
  if (parent->kind == OT_NODE_MAP) return ot_node_child(parent, segment);
  int64_t index;
  if (parent->kind != OT_NODE_LIST || !ot_number_parse_size(segment, &index) || index < 0) {
    return NULL;
  }
  return ot_node_at(parent, index);
}

ot_node *ot_node_find(const ot_node *root, const char *path) {
  const ot_node *parent = root;
  for (const char *at = path;;) {
    const char *rest;
    ot_node *const child = step(parent, at, &rest);
    if (!child || !rest) return child;
    parent = child;
    at = rest;
  }
}

void ot_node_remove(ot_node *parent, const ot_node *child) {
  ot_node *before = NULL;
  for (ot_node *at = parent->first; at != child; at = at->next) {
    OT_ASSERT(at != NULL);
    before = at;
  }
  if (before) {
    before->next = child->next;
  } else {
    parent->first = child->next;
  }
  if (parent->last == child) parent->last = before;
}

void ot_node_replace(ot_node *node, const ot_node *value) {
  ot_node *const next = node->next;
  const char *const key = node->key;
  *node = *value;
  node->next = next;
  node->key = key;
}

void ot_node_copy_place(ot_node *node, const ot_node *from) {
  node->source = from->source;
  node->line = from->line;
  node->column = from->column;
}

void ot_node_set_source(ot_node *node, const char *source) {
  node->source = source;
  node->line = 0;
  node->column = 0;
  for (ot_node *child = node->first; child; child = child->next) ot_node_set_source(child, source);
}

const char *ot_node_place(ot_arena *arena, const ot_node *node) {
  if (!node->source) return "?";
  if (node->line == 0) return node->source;
  if (node->column == 0) return ot_arena_format(arena, "%s:%d", node->source, node->line);
  return ot_arena_format(arena, "%s:%d:%d", node->source, node->line, node->column);
}
