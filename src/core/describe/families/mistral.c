// SPDX-License-Identifier: Apache-2.0
// Mistral: llama with one window in all layers; ministral has windows that differ by layer.
#include "describe/family.h"

static const ot_family_default defaults[] = {
    {"intermediate_size", "14336"},
    {"num_key_value_heads", "8"},
    {"max_position_embeddings", "131072"},
    {"bos_token_id", "1"},
    {"eos_token_id", "2"},
    {0},
};

const ot_family_row ot_family_mistral = {
    .model_type = "mistral",
    .spellings = "mistral|ministral",
    .architecture = "MistralForCausalLM",
    .mixed_type = "ministral",
    .mixed_architecture = "MinistralForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .window_rule = OT_WINDOW_ALL,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_NO_BIAS,
    .keys = "sliding_window|layer_types",
    .defaults = defaults,
    .unread = "attention_bias",
};
