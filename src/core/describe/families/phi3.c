// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4: llama with q, k, v and gate, up in one tensor each. Only their short forms:
// longrope is not supported.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "32064"},
    {"hidden_size", "3072"},
    {"intermediate_size", "8192"},
    {"max_position_embeddings", "4096"},
    {"rms_norm_eps", "1e-05"},
    {"sliding_window", "null"},
    {"resid_pdrop", "0"},
    {"bos_token_id", "1"},
    {"eos_token_id", "32000"},
    {"pad_token_id", "32000"},
    {0},
};

static const ot_key own[] = {
    {"original_max_position_embeddings", OT_KEY_INTEGER,
     offsetof(ot_model_keys, original_positions), "4096", 1, INT32_MAX, .unit = "tokens",
     .after = "max_position_embeddings",
     .help = "length before scaling by longrope; unused, longrope is not supported"},
    {"embd_pdrop", OT_KEY_FIXED, .choices = ot_only_zero, .help = "embeddings are not dropped"},
    {0},
};

static const ot_role_names names[OT_ROLES] = {
    [OT_ROLE_QKV] = {.part = {"self_attn.qkv_proj"}},
    [OT_ROLE_GATE_UP] = {.part = {"mlp.gate_up_proj"}},
};

// transformers treats yarn as its old name of longrope.
static ot_status check_rope(const ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                            const ot_model *model) {
  (void)keys;
  const ot_node *const scaling = ot_model_given(tree, "rope_scaling");
  const ot_node *const node = scaling ? scaling : ot_model_given(tree, "rope_parameters");
  OT_CHECK(model->rope.type == OT_ROPE_DEFAULT, OT_USAGE,
           "model: for phi3 only rope_type default is supported, not longrope (nor its aliases "
           "su and yarn) (%s)",
           ot_node_place(arena, node));
  return OT_OK;
}

const ot_family_row ot_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .window_rule = OT_WINDOW_ALL,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_NO_BIAS,
    .keys = "sliding_window|resid_pdrop",
    .defaults = defaults,
    .own = own,
    .unread = "attention_bias",
    .names = names,
    .check_rope = check_rope,
};
