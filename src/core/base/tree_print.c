// SPDX-License-Identifier: Apache-2.0
// Trees as JSON and as YAML. The output parses back to the same tree, without places.
#include <stddef.h>

#include "base/quote.h"
#include "base/text.h"
#include "base/tree.h"

enum { INDENT = 2 };

static void put_spaces(ot_text_builder *out, int64_t count) {
  for (int64_t i = 0; i < count; i++) ot_text_append(out, " ", 1);
}

void ot_node_write_json(const ot_node *node, const char *key, ot_json_writer *out) {
  switch (node->kind) {
    case OT_NODE_NULL:
      ot_json_null(out, key);
      return;
    case OT_NODE_SCALAR:
      if (node->quoted) {
        ot_json_text(out, key, node->text);
      } else {
        ot_json_raw(out, key, node->text);
      }
      return;
    case OT_NODE_LIST:
      ot_json_array(out, key);
      break;
    case OT_NODE_MAP:
      ot_json_object(out, key);
      break;
  }
  for (const ot_node *child = node->first; child; child = child->next) {
    ot_node_write_json(child, node->kind == OT_NODE_MAP ? child->key : NULL, out);
  }
  ot_json_end(out);
}

// Numbers and truth values are words without quotes. A word read from a file may contain what has
// a meaning elsewhere, such as a comma in a list: it is text then.
static void print_text(const char *text, bool quoted, ot_text_builder *out) {
  bool plain = text[0] != '\0';
  for (const char *at = text; *at != '\0'; at++)
    plain = plain && (ot_is_letter(*at) || ot_is_digit(*at) || ot_text_has("_-./+%", *at));
  if (quoted || !plain) {
    ot_quote_yaml(out, text);
  } else {
    ot_text_put(out, text);
  }
}

static bool is_collection(const ot_node *node) {
  return node->kind == OT_NODE_LIST || node->kind == OT_NODE_MAP;
}

static void print_flow(const ot_node *node, ot_text_builder *out) {
  if (node->kind == OT_NODE_NULL) ot_text_put(out, "null");
  if (node->kind == OT_NODE_SCALAR) print_text(node->text, node->quoted, out);
  if (!is_collection(node)) return;
  const bool map = node->kind == OT_NODE_MAP;
  ot_text_put(out, map ? "{" : "[");
  for (const ot_node *child = node->first; child; child = child->next) {
    if (map) {
      print_text(child->key, true, out);
      ot_text_put(out, ": ");
    }
    print_flow(child, out);
    if (child->next) ot_text_put(out, ", ");
  }
  ot_text_put(out, map ? "}" : "]");
}

static void print_place(const ot_node *node, ot_text_builder *out) {
  ot_text_put(out, "# ");
  ot_quote_comment(out, node->source);
  if (node->line > 0) ot_text_appendf(out, ":%d:%d", node->line, node->column);
}

static void print_block(const ot_node *map, int depth, int comment_column, ot_text_builder *out) {
  for (const ot_node *child = map->first; child; child = child->next) {
    const int64_t start = out->length;
    put_spaces(out, (int64_t)depth * INDENT);
    print_text(child->key, true, out);
    if (child->kind == OT_NODE_MAP && child->first) {
      ot_text_put(out, ":\n");
      print_block(child, depth + 1, comment_column, out);
      continue;
    }
    ot_text_put(out, ": ");
    print_flow(child, out);
    if (comment_column > 0 && child->source) {
      const int64_t width = out->length - start;
      put_spaces(out, width < comment_column - 1 ? comment_column - 1 - width : 1);
      print_place(child, out);
    }
    ot_text_put(out, "\n");
  }
}

void ot_node_print_yaml(const ot_node *node, int comment_column, ot_text_builder *out) {
  if (node->kind == OT_NODE_MAP && node->first) {
    print_block(node, 0, comment_column, out);
    return;
  }
  print_flow(node, out);
  ot_text_put(out, "\n");
}
