// SPDX-License-Identifier: Apache-2.0
// Qwen3 with experts.
#include "describe/family.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "151936"},
    {"hidden_size", "2048"},
    {"intermediate_size", "6144"},
    {"num_hidden_layers", "24"},
    {"num_key_value_heads", "4"},
    {"max_position_embeddings", "32768"},
    {0},
};

const ot_family_row ot_family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .qk_norm = OT_QK_NORM_HEAD,
    .gated_mlp = true,
    .window_switch = true,
    .window_rule = OT_WINDOW_ALL,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS,
    .keys =
        "attention_bias|sliding_window|use_sliding_window|num_experts"
        "|moe_intermediate_size|decoder_sparse_step|mlp_only_layers|norm_topk_prob"
        "|router_aux_loss_coef",
    .defaults = defaults,
};
