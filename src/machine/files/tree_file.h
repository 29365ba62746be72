// SPDX-License-Identifier: Apache-2.0
// YAML 1.2 and JSON files as trees (base/tree.h) whose nodes have file, line and column. Only
// the hand-written subset of YAML is supported: no anchors, aliases, tags, merge keys, multiple
// documents or repeated keys. A malformed file is OT_USAGE with one message that names the place.
#pragma once

#include "base/status.h"
#include "base/tree.h"

// An empty text is an empty map.
ot_status ot_tree_parse_yaml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// Also accepts NaN, Infinity and -Infinity, as written by Python.
ot_status ot_tree_parse_json(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);

// Loads the file at `path`: JSON when its name ends in .json, else YAML. Nodes get the absolute
// directory of the file. An unreadable file is OT_ENVIRONMENT.
ot_status ot_tree_load(const char *path, ot_arena *arena, ot_node **out);
