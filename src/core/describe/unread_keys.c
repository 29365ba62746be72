// SPDX-License-Identifier: Apache-2.0
// Keys in HF files that transformers never reads: they belong to other software, to other families,
// or to code shipped with the weights (tools/check_inert_keys.py compares the tables with
// transformers itself). Keys that transformers reads affect the mathematics and are never ignored.
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/family.h"
#include "describe/model_keys.h"

// Keys that do not affect the mathematics of training.
const char ot_inert_model_keys[] =
    "_name_or_path|name_or_path|architectures|transformers_version|use_cache|"
    "cache_implementation|pretraining_tp|return_dict|output_hidden_states|"
    "output_attentions|torchscript|use_bfloat16|tf_legacy_loss|is_decoder|"
    "cross_attention_hidden_size|tie_encoder_decoder|tie_last_hidden_states|"
    "chunk_size_feed_forward|max_length|min_length|do_sample|early_stopping|num_beams|"
    "num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|"
    "repetition_penalty|length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|"
    "bad_words_ids|num_return_sequences|output_scores|return_dict_in_generate|"
    "forced_bos_token_id|forced_eos_token_id|remove_invalid_values|"
    "exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|finetuning_task|"
    "id2label|label2id|num_labels|tokenizer_class|prefix|sep_token_id|"
    "decoder_start_token_id|task_specific_params|problem_type|attn_implementation|"
    "_attn_implementation|_attn_implementation_autoset|_attn_implementation_internal|"
    "gradient_checkpointing|summary_type|summary_use_proj|summary_activation|"
    "summary_proj_to_labels|summary_first_dropout|n_ctx|_sliding_window_pattern|"
    "output_router_logits|ep_size|num_nextn_predict_layers|num_mtp_layers|qk_head_dim";

// Keys that transformers reads for no family.
static const char unread[] =
    "auto_map|is_llama_config|rope_interleaved|_num_labels|n_special|predict_special_"
    "tokens|output_past|"
    "transformers.js_config|internal_version|model_max_length|max_sequence_length|"
    "neftune_noise_alpha|sliding_window_size|initial_context_length|experts_per_token|unsloth_"
    "fixed|unsloth_version|_flash_attn_2_enabled";

// Keys that are never ignored, even in families without them: those that only Orthant has (moe_*,
// except two of HF's), and one that transformers reads wherever positions are scaled.
static bool is_meant(const char *name) {
  if (ot_text_starts_with(name, "moe_")) {
    return !ot_choice_matches("moe_intermediate_size|moe_layer_freq", name);
  }
  return ot_text_starts_with(name, "attention_residual") ||
         ot_choice_matches("router_z_loss_coef|original_max_position_embeddings", name);
}

static bool is_unread(const char *name, int family) {
  if (family == 0) return false;
  if (ot_choice_matches(unread, name)) return true;
  if (ot_choice_matches(ot_family_of_variant(family)->unread, name)) return true;
  const bool elsewhere =
      !ot_schema_find(&ot_model_schema, family, name) && ot_schema_find(&ot_model_schema, 0, name);
  return elsewhere && !is_meant(name) && !ot_choice_matches(ot_inert_model_keys, name);
}

const char *ot_model_drop_unread(ot_node *tree, ot_arena *arena) {
  const int family = ot_schema_variant(&ot_model_schema, tree);
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
  const int family = ot_schema_variant(&ot_model_schema, tree);
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
