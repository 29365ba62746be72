// SPDX-License-Identifier: Apache-2.0
// JSON as a tree, and the tables that read it: config.json of a model, settings of a run.
#include "files/tree_file.h"
#include "fuzz/fuzz.h"

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const ot_tree_origin origin = {.name = "input.json", .directory = "/nowhere"};
  ot_node *tree;
  OT_TRY(ot_tree_parse_json(&origin, (const char *)data, (int64_t)size, arena, &tree));
  return fuzz_tables(tree, arena);
}
