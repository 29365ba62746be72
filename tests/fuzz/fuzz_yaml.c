// SPDX-License-Identifier: Apache-2.0
// YAML as a tree, and the tables that read it: runs, clusters, frameworks.
#include "files/tree_file.h"
#include "fuzz/fuzz.h"

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const ot_tree_origin origin = {.name = "input.yaml", .directory = "/nowhere"};
  ot_node *tree;
  OT_TRY(ot_tree_parse_yaml(&origin, (const char *)data, (int64_t)size, arena, &tree));
  return fuzz_tables(tree, arena);
}
