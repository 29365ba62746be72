// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 (DeepSeek-AI 2024): latent attention, and experts in groups, chosen by sigmoid scores
// and a bias.
#include "describe/family.h"

const ot_family_default ot_deepseek_v3_defaults[] = {
    {"vocab_size", "129280"},
    {"hidden_size", "7168"},
    {"intermediate_size", "18432"},
    {"num_hidden_layers", "61"},
    {"num_attention_heads", "128"},
    {"max_position_embeddings", "4096"},
    {"bos_token_id", "0"},
    {"eos_token_id", "1"},
    {"moe_intermediate_size", "2048"},
    {"norm_topk_prob", "true"},
    {0},
};

const ot_family_row ot_family_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .latent_attention = true,
    .score = OT_MOE_SIGMOID,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS | OT_KEYS_GROUPED | OT_KEYS_LATENT,
    .keys = "attention_bias|moe_intermediate_size|norm_topk_prob|aux_loss_alpha",
    .defaults = ot_deepseek_v3_defaults,
};
