// SPDX-License-Identifier: Apache-2.0
// Where a cluster's name leads.
#include "files/cluster_file.h"

#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "describe/cluster_keys.h"
#include "files/output_file.h"
#include "files/tree_file.h"
#include "host/heap.h"

ot_status ot_cluster_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                               ot_cluster *out, bool *found) {
  const bool file = strchr(name, '/') || ot_text_ends_with(name, ".yaml");
  const char *const path = file ? name : ot_presets_find(presets, OT_PRESET_CLUSTER, name, arena);
  *found = path != NULL;
  if (!path) {
    if (ot_text_equal(name, "this-machine")) return OT_OK;
    ot_fail(OT_USAGE, "cluster: no preset and no file is called \"%s\"", name);
    if (ot_presets_suggest(presets, OT_PRESET_CLUSTER, name, arena)) return OT_USAGE;
    return ot_fail_hint(OT_USAGE,
                        "`orthant presets` lists the presets, `orthant bench` measures "
                        "this machine");
  }
  ot_node *tree;
  OT_TRY(ot_tree_load(path, arena, &tree));
  return ot_cluster_read(tree, arena, out);
}

static ot_status save(const ot_cluster *cluster, const char *path, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "# Peak rates of one rank, and links between ranks.\n");
  ot_node_print_yaml(ot_cluster_write(cluster, arena), 0, &text);
  const char *const all = ot_text_builder_text(&text);
  return ot_output_file_replace(path, all, ot_text_length(all));
}

ot_status ot_cluster_file_save(const ot_cluster *cluster, const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = save(cluster, path, &arena);
  ot_heap_release(&heap);
  return status;
}
