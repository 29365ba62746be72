// SPDX-License-Identifier: Apache-2.0
// Keys in HF files that transformers never reads: they belong to other software, to other families,
// or to code shipped with the weights (tools/check_inert_keys.py compares the tables with
// transformers itself). Keys that transformers reads affect the mathematics and are never ignored.
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/model_tables.h"

static const struct {
  const char *keys;  // separated by '|'
  uint32_t families;
} unread[] = {
    {"auto_map|is_llama_config|rope_interleaved|use_qk_norm|_num_labels|n_special|predict_special_"
     "tokens|output_past|"
     "transformers.js_config|internal_version|model_max_length|max_sequence_length|"
     "neftune_noise_alpha|sliding_window_size|initial_context_length|experts_per_token|unsloth_"
     "fixed|unsloth_version|_flash_attn_2_enabled",
     OT_IN_ALL},
    {"attention_bias", OT_IN_QWEN2 | OT_IN_MISTRAL | OT_IN_MIXTRAL | OT_IN_PHI3},
};

// Keys that are never ignored, even in families without them: those that only Orthant has (moe_*,
// except two of HF's), and one that transformers reads wherever positions are scaled.
static bool is_meant(const char *name) {
  if (ot_text_starts_with(name, "moe_")) {
    return !ot_choice_matches("moe_intermediate_size|moe_layer_freq", name);
  }
  return ot_text_starts_with(name, "attention_residual") ||
         ot_choice_matches("router_z_loss_coef|original_max_position_embeddings", name);
}

static bool is_unread(const char *name, uint32_t family) {
  for (int i = 0; i < OT_COUNT(unread); i++) {
    if ((unread[i].families & family) != 0 && ot_choice_matches(unread[i].keys, name)) return true;
  }
  const bool elsewhere =
      !ot_schema_find(&ot_model_schema, family, name) && ot_schema_find(&ot_model_schema, 0, name);
  return elsewhere && !is_meant(name) && !ot_choice_matches(ot_inert_model_keys, name);
}

const char *ot_model_drop_unread(ot_node *tree, ot_arena *arena) {
  const uint32_t family = ot_schema_variant(&ot_model_schema, tree);
  ot_text_builder names = {.arena = arena};
  const ot_node *next = NULL;
  for (const ot_node *child = family != 0 ? tree->first : NULL; child; child = next) {
    next = child->next;
    if (!is_unread(child->key, family)) continue;
    ot_text_appendf(&names, "%s%s", names.length > 0 ? ", " : "", child->key);
    ot_node_remove(tree, child);
  }
  return names.length > 0 ? names.text : NULL;
}

static ot_status check_ignored(const ot_node *tree, const char *path, const char *source,
                               ot_arena *arena) {
  const uint32_t family = ot_schema_variant(&ot_model_schema, tree);
  const ot_key *const key = ot_schema_find_path(&ot_model_schema, path);
  const bool inert = ot_choice_matches(ot_inert_model_keys, path);
  if (!key || inert || is_unread(path, family)) return OT_OK;
  const char *const dot = ot_text_find(path, ".");
  const char *const first = dot ? ot_arena_text(arena, path, dot - path) : path;
  if (!ot_schema_find(&ot_model_schema, family, first)) {
    return ot_schema_unknown(&ot_model_schema, family, "model", first, source);
  }
  ot_fail(OT_USAGE, "model.%s changes the mathematics, so it cannot be ignored (%s)", path, source);
  return ot_fail_hint(OT_USAGE, "give it a value: --set model.%s=VALUE; allowed: %s", path,
                      ot_key_range(key, arena));
}

ot_status ot_model_ignore_key(ot_node *tree, const char *path, const char *source,
                              ot_arena *arena) {
  OT_TRY(check_ignored(tree, path, source, arena));
  ot_node *parent = tree;
  const char *name = path;
  for (const char *dot; parent && (dot = ot_text_find(name, ".")) != NULL; name = dot + 1) {
    parent = ot_node_child(parent, ot_arena_text(arena, name, dot - name));
  }
  const bool is_map = parent && parent->kind == OT_NODE_MAP;
  const ot_node *const child = is_map ? ot_node_child(parent, name) : NULL;
  if (child) ot_node_remove(parent, child);
  return OT_OK;
}
