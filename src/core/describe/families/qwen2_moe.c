// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE: experts next to a shared one with a gate.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "151936"},
    {"hidden_size", "2048"},
    {"intermediate_size", "5632"},
    {"num_hidden_layers", "24"},
    {"num_attention_heads", "16"},
    {"num_key_value_heads", "16"},
    {"max_position_embeddings", "32768"},
    {"num_experts", "60"},
    {"num_experts_per_tok", "4"},
    {"moe_intermediate_size", "1408"},
    {0},
};

static const ot_key own[] = {
    {"sliding_window", OT_KEY_INTEGER, offsetof(ot_model_keys, sliding_window), "4096", 0,
     INT32_MAX, .null_text = "0", .unit = "tokens", .after = "sliding_window",
     .help = "keys visible to a query of a sliding layer; 0, as in transformers: no window"},
    {"shared_expert_intermediate_size", OT_KEY_INTEGER,
     offsetof(ot_model_keys, model.moe.shared_size), "5632", 1, 1 << 22,
     .after = "moe_intermediate_size", .help = "width of the shared expert"},
    {"qkv_bias", OT_KEY_BOOL, offsetof(ot_model_keys, model.qkv_bias), "true",
     .after = "moe_intermediate_size", .help = "biases on q, k and v"},
    {0},
};

static const ot_role_names names[OT_ROLES] = {
    [OT_ROLE_SHARED_GATE_UP] = {.part = {"mlp.shared_expert.gate_proj",
                                         "mlp.shared_expert.up_proj"}},
    [OT_ROLE_SHARED_DOWN] = {.part = {"mlp.shared_expert.down_proj"}},
};

const ot_family_row ot_family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .shared_gate = true,
    .window_switch = true,
    .window_rule = OT_WINDOW_EVEN_FIRST,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS,
    .keys =
        "use_sliding_window|max_window_layers|layer_types|num_experts"
        "|moe_intermediate_size|decoder_sparse_step|mlp_only_layers|norm_topk_prob"
        "|router_aux_loss_coef",
    .defaults = defaults,
    .own = own,
    .names = names,
};
