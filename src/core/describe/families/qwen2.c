// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: llama with biases on q, k and v, and windows in the last layers.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "151936"},
    {"intermediate_size", "22016"},
    {"num_key_value_heads", "32"},
    {"max_position_embeddings", "32768"},
    {0},
};

static const ot_key own[] = {
    {"attention_bias", OT_KEY_FIXED, .choices = ot_only_true,
     .help = "qwen2 always has biases on q, k and v"},
    {"use_mrope", OT_KEY_FIXED, .choices = ot_only_false,
     .help = "positions are one number per token"},
    {0},
};

const ot_family_row ot_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .qkv_biases = true,
    .window_switch = true,
    .window_rule = OT_WINDOW_LAST,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "sliding_window|use_sliding_window|max_window_layers|layer_types",
    .defaults = defaults,
    .own = own,
    .unread = "attention_bias",
};
