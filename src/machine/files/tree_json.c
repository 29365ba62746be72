// SPDX-License-Identifier: Apache-2.0
// JSON through jansson, which validates everything but keeps no positions: a second pass over the
// text, now known to be valid, finds the start of each value.
#include <jansson.h>
#include <string.h>

#include "files/json_file.h"
#include "files/tree_file.h"

typedef struct cursor {
  const ot_tree_origin *origin;
  ot_arena *arena;
  const char *at;
  int line, column;
} cursor;

static void advance(cursor *c) {
  const unsigned char byte = (unsigned char)*c->at++;
  if (byte == '\n') {
    c->line++;
    c->column = 1;
  } else if ((byte & 0xc0) != 0x80) {
    c->column++;  // continuation bytes of UTF-8 add no column
  }
}

static void skip_space(cursor *c) {
  while (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r') advance(c);
}

static void skip_string(cursor *c) {
  advance(c);
  while (*c->at != '"') {
    if (*c->at == '\\') advance(c);
    advance(c);
  }
  advance(c);
}

static void skip_word(cursor *c) {
  while (strchr(" \t\r\n,]}", *c->at) == NULL) advance(c);
}

// Consumes `mark` and the space around it.
static void skip_mark(cursor *c, char mark) {
  skip_space(c);
  OT_ASSERT(*c->at == mark);
  advance(c);
  skip_space(c);
}

static ot_node *create(cursor *c, ot_node_kind kind) {
  ot_node *const node = ot_node_create(c->arena, kind);
  node->source = c->origin->name;
  node->directory = c->origin->directory;
  node->line = c->line;
  node->column = c->column;
  return node;
}

static ot_status build(cursor *c, json_t *value, int depth, ot_node **out);

static ot_status build_list(cursor *c, json_t *value, int depth, ot_node *list) {
  skip_mark(c, '[');
  for (size_t i = 0; i < json_array_size(value); i++) {
    if (i > 0) skip_mark(c, ',');
    ot_node *child;
    OT_TRY(build(c, json_array_get(value, i), depth, &child));
    ot_node_append(list, child);
  }
  skip_mark(c, ']');
  return OT_OK;
}

static ot_status build_map(cursor *c, json_t *value, int depth, ot_node *map) {
  const char *key;
  json_t *member;
  bool first = true;
  OT_CHECK(json_object_size(value) <= OT_TREE_KEYS_MAX, OT_USAGE,
           "more than 5000 keys in one map (%s:%d:%d)", c->origin->name, c->line, c->column);
  skip_mark(c, '{');
  json_object_foreach(value, key, member) {
    if (!first) skip_mark(c, ',');
    first = false;
    skip_string(c);
    skip_mark(c, ':');
    ot_node *child;
    OT_TRY(build(c, member, depth, &child));
    ot_node_put(c->arena, map, key, child);
  }
  skip_mark(c, '}');
  return OT_OK;
}

static ot_status build(cursor *c, json_t *value, int depth, ot_node **out) {
  OT_CHECK(depth < OT_TREE_DEPTH_MAX, OT_USAGE, "lists and maps nest more than %d deep (%s:%d:%d)",
           OT_TREE_DEPTH_MAX, c->origin->name, c->line, c->column);
  if (json_is_object(value)) {
    *out = create(c, OT_NODE_MAP);
    return build_map(c, value, depth + 1, *out);
  }
  if (json_is_array(value)) {
    *out = create(c, OT_NODE_LIST);
    return build_list(c, value, depth + 1, *out);
  }
  *out = create(c, json_is_null(value) ? OT_NODE_NULL : OT_NODE_SCALAR);
  const char *const start = c->at;
  if (json_is_string(value)) {
    skip_string(c);
    (*out)->quoted = true;
    (*out)->text =
        ot_arena_text(c->arena, json_string_value(value), (int64_t)json_string_length(value));
    return OT_OK;
  }
  skip_word(c);
  if (!json_is_null(value)) (*out)->text = ot_arena_text(c->arena, start, c->at - start);
  return OT_OK;
}

// Python writes non-finite numbers as words, which are not JSON and which jansson refuses: they are
// replaced by digits for the validation. Returns the number of commas between values.
static int64_t mask_words(char *text) {
  static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
  bool quoted = false;
  int64_t commas = 0;
  for (char *at = text; *at != '\0'; at++) {
    if (*at == '\\' && quoted && at[1] != '\0') {
      at++;
    } else if (*at == '"') {
      quoted = !quoted;
    }
    commas += *at == ',' && !quoted;
    for (int i = 0; !quoted && i < OT_COUNT(words); i++) {
      const size_t length = strlen(words[i]);
      const bool begins = at == text || strchr(" \t\r\n,[:", at[-1]) != NULL;
      if (!begins || strncmp(at, words[i], length) != 0) continue;
      if (strchr(" \t\r\n,]}", at[length]) != NULL) memset(at, '1', length);
    }
  }
  return commas;
}

ot_status ot_tree_parse_json(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out) {
  OT_CHECK(bytes <= OT_TREE_BYTES_MAX, OT_USAGE, "%lld bytes of JSON; allowed: up to %d (%s)",
           (long long)bytes, OT_TREE_BYTES_MAX, origin->name);
  // A zero-terminated copy; the zero ends the second pass.
  const char *const copy = ot_arena_text(arena, text, bytes);
  char *const finite = ot_arena_text(arena, text, bytes);
  // Each value but the first of a map or list follows a comma.
  OT_CHECK(mask_words(finite) < OT_TREE_VALUES_MAX, OT_USAGE, "more than 65536 values (%s)",
           origin->name);
  json_t *root;
  if (ot_json_parse(origin->name, finite, bytes, &root) != OT_OK) return OT_USAGE;
  cursor c = {.origin = origin, .arena = arena, .at = copy, .line = 1, .column = 1};
  skip_space(&c);
  const ot_status status = build(&c, root, 0, out);
  json_decref(root);
  return status;
}
