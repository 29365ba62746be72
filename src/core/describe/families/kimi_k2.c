// SPDX-License-Identifier: Apache-2.0
// Kimi K2 (Moonshot AI 2025): DeepSeek-V3 under a model_type of its own. Files name DeepSeek's
// class and come with its configuration, so that keys and defaults are those of deepseek_v3.c.
#include "describe/family.h"

extern const ot_family_default ot_deepseek_v3_defaults[];

const ot_family_row ot_family_kimi_k2 = {
    .model_type = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .latent_attention = true,
    .score = OT_MOE_SIGMOID,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS | OT_KEYS_GROUPED | OT_KEYS_LATENT,
    .keys = "attention_bias|moe_intermediate_size|norm_topk_prob|aux_loss_alpha",
    .defaults = ot_deepseek_v3_defaults,
};
