// SPDX-License-Identifier: Apache-2.0
// Trees as JSON and as YAML. The output parses back to the same tree, without places.
#include <stddef.h>

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

// Text that YAML parses as itself without quotes in any context.
static bool is_plain(const char *text) {
  static const char *const reserved[] = {"null", "Null", "NULL", "true", "false"};
  for (int i = 0; i < 5; i++) {
    if (ot_text_equal(text, reserved[i])) return false;
  }
  if (!ot_is_letter(text[0]) && text[0] != '/' && text[0] != '_') return false;
  for (const char *at = text; *at != '\0'; at++) {
    const bool digit = *at >= '0' && *at <= '9';
    const bool mark = *at == '_' || *at == '-' || *at == '.' || *at == '/' || *at == '+';
    if (!ot_is_letter(*at) && !digit && !mark) return false;
  }
  return true;
}

static void print_text(const char *text, bool quoted, ot_text_builder *out) {
  if (!quoted || is_plain(text)) {
    ot_text_put(out, text);
  } else {
    ot_json_writer string = ot_json_begin(out->arena, 0);
    ot_json_text(&string, NULL, text);
    ot_text_append(out, string.text, string.length);
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

// A comment ends at the line end, so a file name must not contain one.
static void print_place(const ot_node *node, ot_text_builder *out) {
  ot_text_put(out, "# ");
  for (const char *at = node->source; *at != '\0'; at++) {
    ot_text_append(out, (unsigned char)*at < ' ' ? "?" : at, 1);
  }
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
