// SPDX-License-Identifier: Apache-2.0
// OLMo 2: norms after each branch, and of whole rows of q and k.
#include "describe/family.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "50304"},
    {"rms_norm_eps", "1e-05"},
    {"eos_token_id", "50279"},
    {"pad_token_id", "1"},
    {0},
};

const ot_family_row ot_family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .norm_placement = OT_NORM_POST,
    .qk_norm = OT_QK_NORM_ROW,
    .gated_mlp = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "attention_bias",
    .defaults = defaults,
};
