// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3 (Touvron et al. 2023). Other families are described by how they differ from it.
#include "describe/family.h"

static const ot_family_default defaults[] = {
    {"bos_token_id", "1"},
    {"eos_token_id", "2"},
    {0},
};

const ot_family_row ot_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .gated_mlp = true,
    .key_sets = OT_KEYS_ROTARY,
    .keys = "attention_bias|mlp_bias",
    .defaults = defaults,
};
