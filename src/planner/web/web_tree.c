// SPDX-License-Identifier: Apache-2.0
// Lines to nodes. A line at depth d is a child of the last line at depth d - 1.
#include <string.h>

#include "base/text.h"
#include "web/web_parts.h"

enum { MOST_DEPTH = 32 };

typedef struct lines {
  ot_arena *arena;
  const char *at, *end;
  int number;
  ot_node *open[MOST_DEPTH];  // the last node at each depth
  int depth;                  // of the last node
} lines;

// The next field, unescaped; it ends with a tab or at the end of the line.
static char *next_field(lines *l) {
  const char *stop = l->at;
  while (stop < l->end && *stop != '\t' && *stop != '\n') stop++;
  char *const field = ot_arena_text(l->arena, l->at, stop - l->at);
  l->at = stop < l->end && *stop == '\t' ? stop + 1 : stop;
  char *to = field;
  for (const char *from = field; *from != '\0'; from++) {
    if (*from != '\\' || from[1] == '\0') {
      *to++ = *from;
      continue;
    }
    from++;
    *to++ = (char)(*from == 't' ? '\t' : *from == 'n' ? '\n' : *from);
  }
  *to = '\0';
  return field;
}

static ot_status malformed(const lines *l) {
  return ot_fail(OT_USAGE, "line %d of the request is no node", l->number);
}

static ot_node *node_of(lines *l, char kind, const char *text) {
  switch (kind) {
    case 'm':
      return ot_node_create(l->arena, OT_NODE_MAP);
    case 'l':
      return ot_node_create(l->arena, OT_NODE_LIST);
    case 'n':
      return ot_node_create(l->arena, OT_NODE_NULL);
    case 't':
      return ot_node_text(l->arena, text);
    case 'w':
      return ot_node_word(l->arena, text);
    default:
      return NULL;
  }
}

// Puts the node under its parent, which must be a map or a list.
static ot_status place(lines *l, int depth, const char *key, ot_node *node) {
  ot_node *const parent = depth > 0 ? l->open[depth - 1] : NULL;
  l->open[depth] = node;
  l->depth = depth;
  if (!parent) return OT_OK;
  if (parent->kind == OT_NODE_LIST) {
    ot_node_append(parent, node);
    return OT_OK;
  }
  if (parent->kind != OT_NODE_MAP || ot_node_child(parent, key)) return malformed(l);
  ot_node_put(l->arena, parent, key, node);
  return OT_OK;
}

static ot_status read_line(lines *l) {
  l->number++;
  const char *const digits = next_field(l), *const kind = next_field(l);
  const char *const key = next_field(l), *const text = next_field(l);
  int depth = 0;
  if (digits[0] == '\0' || ot_text_length(digits) > 2) return malformed(l);
  for (const char *c = digits; *c != '\0'; c++) {
    if (*c < '0' || *c > '9') return malformed(l);
    depth = 10 * depth + (*c - '0');
  }
  const bool first = l->number == 1;
  if (depth >= MOST_DEPTH || depth > l->depth + 1 || (depth == 0) != first) return malformed(l);
  ot_node *const node = node_of(l, kind[0], text);
  const bool ends = l->at == l->end || *l->at == '\n';
  if (!node || !ends) return malformed(l);
  if (l->at < l->end) l->at++;
  return place(l, depth, key, node);
}

ot_status ot_web_tree_read(const char *text, int64_t length, ot_arena *arena, ot_node **out) {
  lines *const l = ot_arena_take(arena, sizeof *l);
  *l = (lines){.arena = arena, .at = text, .end = text + length};
  while (l->at < l->end) OT_TRY(read_line(l));
  OT_CHECK(l->open[0] && l->open[0]->kind == OT_NODE_MAP, OT_USAGE, "the request is no map");
  *out = l->open[0];
  return OT_OK;
}
