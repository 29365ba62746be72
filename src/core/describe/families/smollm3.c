// SPDX-License-Identifier: Apache-2.0
// SmolLM3: llama with layers without rotation.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "128256"},
    {"hidden_size", "2048"},
    {"num_hidden_layers", "36"},
    {"num_attention_heads", "16"},
    {"num_key_value_heads", "4"},
    {"max_position_embeddings", "32768"},
    {"tie_word_embeddings", "true"},
    {"rope_theta", "2000000"},
    {"sliding_window", "null"},
    {"bos_token_id", "128000"},
    {"eos_token_id", "128001"},
    {"pad_token_id", "128004"},
    {0},
};

static const ot_key own[] = {
    {"no_rope_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, rope_layers), "", 0, 1,
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_model_keys, num_rope_layers),
     .null_text = "", .after = "rope_parameters",
     .help = "per layer: 1: rotary positions; 0: none"},
    {"no_rope_layer_interval", OT_KEY_INTEGER, offsetof(ot_model_keys, no_rope_interval), "4", 1,
     INT32_MAX, .after = "rope_parameters",
     .help = "interval of layers without rotation, unless no_rope_layers is given"},
    {0},
};

const ot_family_row ot_family_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .window_switch = true,
    .window_rule = OT_WINDOW_NO_ROPE,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "attention_bias|mlp_bias|sliding_window|use_sliding_window|layer_types",
    .defaults = defaults,
    .own = own,
};
