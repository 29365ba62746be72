// SPDX-License-Identifier: Apache-2.0
// Gemma 2: norms around each branch, soft caps of scores and logits, windows in even layers.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "256000"},
    {"hidden_size", "2304"},
    {"intermediate_size", "9216"},
    {"num_hidden_layers", "26"},
    {"num_attention_heads", "8"},
    {"num_key_value_heads", "4"},
    {"head_dim", "256"},
    {"max_position_embeddings", "8192"},
    {"tie_word_embeddings", "true"},
    {"attn_logit_softcapping", "50"},
    {"final_logit_softcapping", "30"},
    {"bos_token_id", "2"},
    {"eos_token_id", "1"},
    {"pad_token_id", "0"},
    {0},
};

static const ot_key own[] = {
    {"attn_logit_softcapping", OT_KEY_REAL, offsetof(ot_model_keys, model.score_soft_cap), "null",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "0", .after = "query_pre_attn_scalar",
     .help = "soft cap of attention scores, cap * tanh(score / cap); null: none"},
    {"final_logit_softcapping", OT_KEY_REAL, offsetof(ot_model_keys, model.logit_soft_cap), "null",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "0", .after = "query_pre_attn_scalar",
     .help = "soft cap of logits; null: none"},
    {0},
};

const ot_family_row ot_family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .norm_placement = OT_NORM_SANDWICH,
    .norm_offset = 1,
    .gated_mlp = true,
    .scaled_embedding = true,
    .window_rule = OT_WINDOW_EVEN,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY,
    .without = "hidden_act",
    .keys =
        "hidden_activation|attention_bias|query_pre_attn_scalar|sliding_window"
        "|layer_types|use_bidirectional_attention",
    .defaults = defaults,
    .own = own,
};
