// SPDX-License-Identifier: Apache-2.0
// The tables of a cluster file: devices and links with their units and ranges; or pools, each such
// a cluster, and the links between them.
#pragma once

#include "base/schema.h"
#include "describe/cluster.h"

extern const ot_schema ot_cluster_schema;
extern const ot_schema ot_mixed_cluster_schema;  // of a file with the key `pools`

// Parses `tree` (null: an error) into `out` and checks it; text is allocated in `arena`. The key
// `base`, and `cluster` of a pool, may be a map of keys, which hold where the map around it gives
// none; with rates of its own that map is extrapolated, not fitted.
ot_status ot_cluster_read(const ot_node *tree, ot_arena *arena, ot_cluster *out);

// The same as a tree for writing.
ot_node *ot_cluster_write(const ot_cluster *cluster, ot_arena *arena);
