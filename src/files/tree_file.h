// SPDX-License-Identifier: Apache-2.0
// YAML 1.2, JSON and TOML files as trees (base/tree.h) whose nodes have file, line and column. Only
// the hand-written subset of YAML is supported: no anchors, aliases, tags, merge keys, multiple
// documents or repeated keys. A malformed file is OT_USAGE with one message that names the place.
#pragma once

#include "base/status.h"
#include "base/tree.h"

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

// An empty text is an empty map.
ot_status ot_tree_parse_yaml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// Also accepts NaN, Infinity and -Infinity, as written by Python.
ot_status ot_tree_parse_json(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// The subset of TOML 1.0 used by training configurations: tables, bare and quoted keys, single-line
// strings, numbers, booleans, lists. Dates, inline tables, arrays of tables and dotted keys outside
// headers are OT_USAGE.
ot_status ot_tree_parse_toml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// Loads the file at `path`: JSON when its name ends in .json, else YAML. Nodes get the absolute
// directory of the file. An unreadable file is OT_ENVIRONMENT.
ot_status ot_tree_load(const char *path, ot_arena *arena, ot_node **out);
