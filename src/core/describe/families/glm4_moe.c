// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 to 4.7 (GLM-4.5 Team 2025): grouped-query attention with rotation of half a head,
// optional norms of q and k per head, and the experts of DeepSeek-V3.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "151552"},
    {"intermediate_size", "10944"},
    {"num_hidden_layers", "46"},
    {"num_attention_heads", "96"},
    {"num_key_value_heads", "8"},
    {"max_position_embeddings", "131072"},
    {"rms_norm_eps", "1e-05"},
    {"n_routed_experts", "128"},
    {"moe_intermediate_size", "1408"},
    {"first_k_dense_replace", "1"},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {0},
};

static const ot_key own[] = {
    {"attention_bias", OT_KEY_BOOL, offsetof(ot_model_keys, model.qkv_bias), "false",
     .after = "tie_word_embeddings", .help = "biases on q, k and v"},
    {"use_qk_norm", OT_KEY_BOOL, offsetof(ot_model_keys, use_qk_norm), "false",
     .after = "tie_word_embeddings", .help = "norms of queries and keys per head"},
    {"partial_rotary_factor", OT_KEY_REAL, offsetof(ot_model_keys, partial_rotary), "0.5", 0, 1,
     .above_minimum = true, .after = "rope_theta", .help = "share of a head that rotates"},
    {0},
};

const ot_family_row ot_family_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .score = OT_MOE_SIGMOID,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS | OT_KEYS_GROUPED,
    .without = "partial_rotary_factor",
    .keys = "moe_intermediate_size|norm_topk_prob|aux_loss_alpha",
    .defaults = defaults,
    .own = own,
};
