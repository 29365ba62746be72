// SPDX-License-Identifier: Apache-2.0
// OLMoE: experts in every layer, norms of whole rows of q and k.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "50304"},
    {"hidden_size", "2048"},
    {"intermediate_size", "2048"},
    {"num_hidden_layers", "16"},
    {"num_attention_heads", "16"},
    {"max_position_embeddings", "4096"},
    {"rms_norm_eps", "1e-05"},
    {"eos_token_id", "50279"},
    {"pad_token_id", "1"},
    {"num_experts", "64"},
    {"router_aux_loss_coef", "0.01"},
    {0},
};

static const ot_key own[] = {
    {"sliding_window", OT_KEY_FIXED, .choices = ot_only_null, .help = "olmoe has no windows"},
    {"clip_qkv", OT_KEY_FIXED, .choices = ot_only_null,
     .help = "queries, keys and values are not clipped"},
    {0},
};

const ot_family_row ot_family_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .qk_norm = OT_QK_NORM_ROW,
    .gated_mlp = true,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS,
    .keys = "attention_bias|num_experts|norm_topk_prob|router_aux_loss_coef",
    .defaults = defaults,
    .own = own,
};
