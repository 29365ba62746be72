// SPDX-License-Identifier: Apache-2.0
// Whether the figures of a cluster are possible. Messages name a key as a cluster file spells it,
// with its place in the file.
#pragma once

#include "base/tree.h"
#include "describe/cluster.h"

// A cluster and the tree from which it was read.
typedef struct ot_cluster_source {
  const ot_cluster *cluster;
  const ot_node *tree;  // null: messages name the cluster instead of a place
  ot_arena *arena;      // of messages; null without a tree
  const char *prefix;   // of the paths of its keys if it is a part of a tree, or ""
} ot_cluster_source;

// OT_USAGE for figures that cannot be.
ot_status ot_cluster_check_source(const ot_cluster_source *source);

// OT_USAGE for a link, whose keys are at `path` of the tree, with rates that cannot be.
ot_status ot_cluster_check_link(const ot_cluster_source *source, const char *path,
                                const ot_link_level *link);

// Fails with "KEY: WHAT (PLACE)"; `key` is a path in the tree, such as "levels.1.size". The place
// of a key that is absent is that of the nearest map around it.
ot_status ot_cluster_refuse(const ot_cluster_source *source, const char *key, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));
