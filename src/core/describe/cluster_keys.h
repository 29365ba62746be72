// SPDX-License-Identifier: Apache-2.0
// The tables of a cluster file: devices and links with their units and ranges; or pools, each such
// a cluster, and the links between them.
#pragma once

#include "base/schema.h"
#include "describe/cluster.h"

extern const ot_schema ot_cluster_schema;

// Appends the tables of all keys of a cluster file, with comments around them.
void ot_cluster_keys_table(ot_text_builder *out);

// Calls `visit` with each map of `tree` that may derive from another cluster, and the key that
// names it: `base` of the whole, `cluster` of a pool. Stops at a failure, which it returns.
typedef ot_status (*ot_cluster_base_visit)(const void *context, ot_node *map, const char *key);
ot_status ot_cluster_each_base(ot_node *tree, ot_cluster_base_visit visit, const void *context);

// Whether `tree` (may be null) is a map of the keys of a cluster of one kind of device.
bool ot_cluster_tree_is_alike(const ot_node *tree);

// Parses `tree` (null: an error) into `out` and checks it; text is allocated in `arena`. The key
// `base`, and `cluster` of a pool, may be a map of keys, which hold where the map around it gives
// none; with rates of its own that map is extrapolated, not fitted.
ot_status ot_cluster_read(const ot_node *tree, ot_arena *arena, ot_cluster *out);

// The same as a tree for writing.
ot_node *ot_cluster_write(const ot_cluster *cluster, ot_arena *arena);
