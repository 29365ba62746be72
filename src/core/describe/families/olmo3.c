// SPDX-License-Identifier: Apache-2.0
// OLMo 3: olmo2 with windows in three of four layers, and rotary parameters per layer type.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "50304"},   {"rms_norm_eps", "1e-05"}, {"rope_theta", "500000"},
    {"eos_token_id", "50279"}, {"pad_token_id", "1"},     {0},
};

// rope_theta applies to all layers in transformers 4, but only to layers without a window in
// transformers 5, which uses 500,000 for the others.
static ot_status check_rope(const ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                            const ot_model *model) {
  (void)model;
  const ot_node *const old = ot_model_given(tree, "rope_theta");
  const ot_node *const sets = ot_model_given(tree, "rope_parameters");
  const ot_node *const sliding = ot_model_given(sets, "sliding_attention");
  if (!old || ot_model_given(sliding, "rope_theta") || keys->rope_theta == 500000) return OT_OK;
  ot_fail(OT_USAGE,
          "model: rope_theta=%.9g of olmo3 differs in meaning between transformers 4 and 5 (%s)",
          keys->rope_theta, ot_node_place(arena, old));
  return ot_fail_hint(OT_USAGE,
                      "give rope_parameters: {full_attention: {rope_theta: ...}, "
                      "sliding_attention: {rope_theta: ...}}");
}

const ot_family_row ot_family_olmo3 = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .norm_placement = OT_NORM_POST,
    .qk_norm = OT_QK_NORM_ROW,
    .gated_mlp = true,
    .rope_by_type = true,
    .window_rule = OT_WINDOW_BUT_FOURTH,
    .writes_layer_types = true,
    .ambiguous_theta = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "attention_bias|sliding_window|layer_types",
    .defaults = defaults,
    .check_rope = check_rope,
};
