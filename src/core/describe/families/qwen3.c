// SPDX-License-Identifier: Apache-2.0
// Qwen3: llama with norms of q and k per head.
#include "describe/family.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "151936"}, {"intermediate_size", "22016"},       {"num_key_value_heads", "32"},
    {"head_dim", "128"},      {"max_position_embeddings", "32768"}, {0},
};

const ot_family_row ot_family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .qk_norm = OT_QK_NORM_HEAD,
    .gated_mlp = true,
    .window_switch = true,
    .window_rule = OT_WINDOW_LAST,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "attention_bias|sliding_window|use_sliding_window|max_window_layers|layer_types",
    .defaults = defaults,
};
