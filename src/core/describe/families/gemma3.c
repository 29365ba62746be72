// SPDX-License-Identifier: Apache-2.0
// Gemma 3, text only: gemma2 with norms of q and k in place of soft caps, and rotary parameters of
// their own for layers with a window.
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "262208"},
    {"hidden_size", "2304"},
    {"intermediate_size", "9216"},
    {"num_hidden_layers", "26"},
    {"num_attention_heads", "8"},
    {"num_key_value_heads", "4"},
    {"head_dim", "256"},
    {"max_position_embeddings", "131072"},
    {"tie_word_embeddings", "true"},
    {"rope_theta", "1000000"},
    {"bos_token_id", "2"},
    {"eos_token_id", "1"},
    {"pad_token_id", "0"},
    {0},
};

static const ot_key own[] = {
    {"rope_local_base_freq", OT_KEY_REAL, offsetof(ot_model_keys, rope_local_theta), "10000", 0,
     OT_NO_MAXIMUM, .above_minimum = true, .after = "rope_theta",
     .help = "the same in layers with a window"},
    {"sliding_window_pattern", OT_KEY_INTEGER, offsetof(ot_model_keys, sliding_window_pattern), "6",
     1, INT32_MAX, .after = "max_window_layers", .help = "interval of layers with full attention"},
    {"attn_logit_softcapping", OT_KEY_FIXED, .choices = ot_only_null,
     .help = "attention scores are not capped"},
    {"final_logit_softcapping", OT_KEY_FIXED, .choices = ot_only_null,
     .help = "logits are not capped"},
    {0},
};

const ot_family_row ot_family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .norm = OT_NORM_RMSNORM,
    .norm_placement = OT_NORM_SANDWICH,
    .qk_norm = OT_QK_NORM_HEAD,
    .norm_offset = 1,
    .gated_mlp = true,
    .scaled_embedding = true,
    .rope_by_type = true,
    .window_rule = OT_WINDOW_PATTERN,
    .writes_layer_types = true,
    .key_sets = OT_KEYS_ROTARY,
    .without = "hidden_act",
    .keys =
        "hidden_activation|attention_bias|query_pre_attn_scalar|sliding_window"
        "|layer_types|use_bidirectional_attention",
    .defaults = defaults,
    .own = own,
};
