// SPDX-License-Identifier: Apache-2.0
// A parsed document: maps, lists and scalars, each with its place in the source. YAML and JSON
// readers (outside the pure half), `--set` and the web page build trees; base/schema.h converts a
// tree to a typed object and back. Scalars are untyped text; the schema gives their type. Nodes are
// allocated in one arena.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/status.h"
#include "base/text_builder.h"

typedef enum ot_node_kind { OT_NODE_NULL, OT_NODE_SCALAR, OT_NODE_LIST, OT_NODE_MAP } ot_node_kind;

typedef struct ot_node {
  ot_node_kind kind;
  bool quoted;            // a scalar that is text, not a number or truth value
  const char *key;        // inside a map, else null
  const char *text;       // of a scalar
  const char *source;     // file, "--set KEY", "default", ...; null = unknown
  int line, column;       // from 1; 0 = none
  const char *directory;  // base directory of relative paths written here; null = unchanged
  struct ot_node *first, *last, *next;  // children in order
} ot_node;

// Limits of what is read from files.
enum {
  OT_TREE_BYTES_MAX = 1 << 20,   // per file
  OT_TREE_KEYS_MAX = 5000,       // per map
  OT_TREE_VALUES_MAX = 1 << 16,  // per file
  OT_TREE_DEPTH_MAX = 64,
};

// Origin of a text: `name` for messages and nodes, `directory` for relative paths in it (null:
// none). Both must outlive the tree.
typedef struct ot_tree_origin {
  const char *name;
  const char *directory;
} ot_tree_origin;

// Reads `text`, which need not end in zero. OT_USAGE names the place of what is malformed.
typedef ot_status ot_tree_parser(const ot_tree_origin *origin, const char *text, int64_t bytes,
                                 ot_arena *arena, ot_node **out);

ot_node *ot_node_create(ot_arena *arena, ot_node_kind kind);

// Scalars; `text` is copied. ot_node_text is quoted, ot_node_word is not.
ot_node *ot_node_text(ot_arena *arena, const char *text);
ot_node *ot_node_word(ot_arena *arena, const char *text);
ot_node *ot_node_integer(ot_arena *arena, int64_t value);
ot_node *ot_node_real(ot_arena *arena, double value);
ot_node *ot_node_bool(ot_arena *arena, bool value);

// Appends `child` to a list, or to a map under `key` (copied); returns `child`.
ot_node *ot_node_append(ot_node *list, ot_node *child);
ot_node *ot_node_put(ot_arena *arena, ot_node *map, const char *key, ot_node *child);

// The child of a map called `key`, or null; of a list or map by its index from 0, or null.
ot_node *ot_node_child(const ot_node *map, const char *key);
ot_node *ot_node_at(const ot_node *parent, int64_t index);
int64_t ot_node_count(const ot_node *parent);

// The node at a path such as "data.train.0.path", or null.
ot_node *ot_node_find(const ot_node *root, const char *path);

// Removes `child` from its parent `parent`.
void ot_node_remove(ot_node *parent, const ot_node *child);

// Replaces the content of `node` by `value`, sharing its children; keeps its key and siblings.
void ot_node_replace(ot_node *node, const ot_node *value);

// Copies source and position of `from` to `node`.
void ot_node_copy_place(ot_node *node, const ot_node *from);

// Sets the source of `node` and its descendants, without a position.
void ot_node_set_source(ot_node *node, const char *source);

// "run.yaml:3:7", "--set optimizer.lr", "default"; text in `arena`. "?" without a source.
const char *ot_node_place(ot_arena *arena, const ot_node *node);

// Writes the tree as JSON: quoted scalars as text, others verbatim. `key` as in ot_json_object.
void ot_node_write_json(const ot_node *node, const char *key, ot_json_writer *out);

// YAML: maps as blocks, lists in brackets. With `comment_column` > 0 each value is followed, at
// that column, by its place as a comment.
void ot_node_print_yaml(const ot_node *node, int comment_column, ot_text_builder *out);
