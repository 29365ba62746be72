// SPDX-License-Identifier: Apache-2.0
// YAML 1.2, JSON and TOML files as trees (base/tree.h) whose nodes know file, line and column. YAML
// here is the part that people write by hand: no anchors, aliases, tags, merge keys or several
// documents; no repeated keys. A malformed file is OT_USAGE with one message that names the place.
#pragma once

#include "base/status.h"
#include "base/tree.h"

enum {
  OT_TREE_BYTES_MAX = 1 << 20,  // of a file
  OT_TREE_KEYS_MAX = 5000,      // of one map
  OT_TREE_DEPTH_MAX = 64,
};

// Where a text comes from: `name` for messages and nodes, `directory` for relative paths in it
// (null: none). Both must live as long as the tree.
typedef struct ot_tree_origin {
  const char *name;
  const char *directory;
} ot_tree_origin;

// An empty text is an empty map.
ot_status ot_tree_parse_yaml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// NaN, Infinity and -Infinity, which Python writes, are words, too.
ot_status ot_tree_parse_json(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// The part of TOML 1.0 that configurations of training are written in: tables, bare and quoted
// keys, texts on one line, numbers, truth values, lists. No dates, no inline tables, no lists of
// tables, no dotted keys but in headers: these are OT_USAGE.
ot_status ot_tree_parse_toml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// The file at `path`: JSON when its name ends in .json, else YAML. Nodes get the absolute directory
// of the file. A file that cannot be read is OT_ENVIRONMENT.
ot_status ot_tree_load(const char *path, ot_arena *arena, ot_node **out);
