// SPDX-License-Identifier: Apache-2.0
// Mixtral: mistral with experts in every layer.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"intermediate_size", "14336"},
    {"num_key_value_heads", "8"},
    {"max_position_embeddings", "131072"},
    {"rms_norm_eps", "1e-05"},
    {"rope_theta", "1000000"},
    {"sliding_window", "null"},
    {"bos_token_id", "1"},
    {"eos_token_id", "2"},
    {"num_experts_per_tok", "2"},
    {0},
};

static const ot_key own[] = {
    {"router_jitter_noise", OT_KEY_FIXED, .choices = ot_only_zero,
     .help = "no noise on the router's inputs"},
    {0},
};

static const ot_role_names names[OT_ROLES] = {
    [OT_ROLE_ROUTER] = {.part = {"block_sparse_moe.gate"}},
    [OT_ROLE_EXPERT_GATE_UP] = {.part = {"block_sparse_moe.experts.#.w1",
                                         "block_sparse_moe.experts.#.w3"}},
    [OT_ROLE_EXPERT_DOWN] = {.part = {"block_sparse_moe.experts.#.w2"}},
};

const ot_family_row ot_family_mixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .renormalise = true,
    .window_rule = OT_WINDOW_ALL,
    .key_sets = OT_KEYS_ROTARY | OT_KEYS_EXPERTS | OT_KEYS_NO_BIAS,
    .keys = "sliding_window|num_local_experts|router_aux_loss_coef",
    .defaults = defaults,
    .own = own,
    .unread = "attention_bias",
    .names = names,
};
