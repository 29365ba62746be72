// SPDX-License-Identifier: Apache-2.0
// gpt-oss: attention sinks, clamped SwiGLU, and experts with biases, stacked in one tensor of
// files.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "201088"},
    {"hidden_size", "2880"},
    {"intermediate_size", "2880"},
    {"num_hidden_layers", "36"},
    {"num_attention_heads", "64"},
    {"num_key_value_heads", "8"},
    {"head_dim", "64"},
    {"max_position_embeddings", "131072"},
    {"rms_norm_eps", "1e-05"},
    {"attention_bias", "true"},
    {"rope_theta", "150000"},
    {"sliding_window", "128"},
    {"num_local_experts", "128"},
    {"num_experts_per_tok", "4"},
    {0},
};

static const ot_key own[] = {
    {"swiglu_alpha", OT_KEY_REAL, offsetof(ot_model_keys, model.glu_alpha), "1.702", 0,
     OT_NO_MAXIMUM, .above_minimum = true, .after = "moe_bias_update_rate",
     .help = "experts: slope of the sigmoid of the gate"},
    {"swiglu_limit", OT_KEY_REAL, offsetof(ot_model_keys, model.glu_limit), "7", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .after = "moe_bias_update_rate",
     .help = "experts: upper limit of the gate, and of up in magnitude"},
    {0},
};

static const ot_role_names names[OT_ROLES] = {
    [OT_ROLE_ROUTER] = {.part = {"mlp.router"}},
    [OT_ROLE_EXPERT_GATE_UP] = {.part = {"mlp.experts.gate_up_proj[#]"},
                                .transposed = true,
                                .interleaved = true},
    [OT_ROLE_EXPERT_DOWN] = {.part = {"mlp.experts.down_proj[#]"}, .transposed = true},
};

const ot_family_row ot_family_gpt_oss = {
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .sinks = true,
    .expert_biases = true,
    .renormalise = true,
    .window_rule = OT_WINDOW_EVEN,
    .writes_layer_types = true,
    .unreadable = "mxfp4",
    .usual_rope = {.type = OT_ROPE_YARN,
                   .factor = 32,
                   .original_positions = 4096,
                   .beta_fast = 32,
                   .beta_slow = 1,
                   .exact_ramp = true},
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS,
    .keys =
        "attention_bias|sliding_window|layer_types|num_local_experts"
        "|router_aux_loss_coef",
    .defaults = defaults,
    .own = own,
    .names = names,
};
