// SPDX-License-Identifier: Apache-2.0
// Commits of a git repository, built one after another in a work tree of their own.
#pragma once

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_work_tree {
  ot_arena *arena;
  const char *source;  // repository
  const char *path;    // absolute; what git and builds say is in PATH.log
} ot_work_tree;

// Lists `good` and the first parents of GOOD..LAST as "HASH SUBJECT", oldest first.
//   labels  [*count], in the arena
ot_status ot_work_tree_list(const ot_work_tree *tree, const char *good, const char *last,
                            const char ***labels, int64_t *count);

// Makes the work tree, at `commit`.
ot_status ot_work_tree_create(const ot_work_tree *tree, const char *commit);

// Checks out another commit.
ot_status ot_work_tree_move(const ot_work_tree *tree, const char *commit);

// Runs a shell command in the work tree.
ot_status ot_work_tree_build(const ot_work_tree *tree, const char *command);

// Removes the work tree, which need not exist.
ot_status ot_work_tree_remove(const ot_work_tree *tree);
