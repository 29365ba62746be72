// SPDX-License-Identifier: Apache-2.0
// Files with flags of Megatron-LM: scripts, or YAML maps.
#include "base/text.h"
#include "software/import_parts.h"

// A YAML map of flags, at the top level or under MODEL_ARGS; false and null count as absent.
static ot_status collect_yaml(ot_import *import, ot_node **map) {
  ot_node *tree;
  OT_TRY(ot_import_parse_yaml(import, &tree));
  OT_CHECK(tree->kind == OT_NODE_MAP, OT_USAGE, "%s: not a map of flags", import->path);
  const ot_node *const inner = ot_node_child(tree, "MODEL_ARGS");
  if (inner) tree = (ot_node *)(uintptr_t)inner;
  *map = ot_node_create(import->arena, OT_NODE_MAP);
  (*map)->source = import->path;
  ot_node *next;
  for (ot_node *child = tree->first; child; child = next) {
    next = child->next;
    const bool off = child->kind == OT_NODE_NULL || (child->kind == OT_NODE_SCALAR &&
                                                     ot_choice_matches("false|False", child->text));
    if (off) continue;
    const char *const key = ot_megatron_key(import->arena, child->key, ot_text_length(child->key));
    ot_node_put(import->arena, *map, key, child);
  }
  return OT_OK;
}

static bool has_any_line(const ot_import *import, const char *const *words) {
  for (int i = 0; words[i]; i++) {
    if (ot_import_has_line(import, words[i])) return true;
  }
  return false;
}

static bool is_yaml(const ot_import *import) {
  static const char *const words[] = {"MODEL_ARGS:",
                                      "num_layers:",
                                      "num-layers:",
                                      "--num-layers:",
                                      "hidden_size:",
                                      "hidden-size:",
                                      "tensor_model_parallel_size:",
                                      NULL};
  return has_any_line(import, words);
}

bool ot_megatron_is(const ot_import *import) {
  return is_yaml(import) || ot_megatron_has_flags(import->text);
}

ot_status ot_megatron_of_map(ot_import *import, ot_node *map) {
  ot_megatron_flags flags;
  OT_TRY(ot_megatron_job(import, map, &flags));
  return flags.deepspeed ? ot_deepspeed_of_script(import, &flags) : OT_OK;
}

ot_status ot_megatron_import(ot_import *import) {
  ot_node *map = NULL;
  OT_TRY(is_yaml(import) ? collect_yaml(import, &map) : ot_megatron_script_read(import, &map));
  return ot_megatron_of_map(import, map);
}
