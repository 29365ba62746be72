// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019): LayerNorm, learned positions, biases everywhere, and weights of
// Conv1D modules, stored as [inputs, outputs].
#include "describe/family.h"
#include "describe/model_keys.h"

static const ot_family_default defaults[] = {
    {"vocab_size", "50257"},
    {"tie_word_embeddings", "true"},
    {"bos_token_id", "50256"},
    {"eos_token_id", "50256"},
    {0},
};

static const ot_key own[] = {
    {"n_embd", OT_KEY_INTEGER, offsetof(ot_model_keys, model.hidden_size), "768", 1, 1 << 20,
     .also = "hidden_size", .after = "hidden_size", .help = "width of the residual stream"},
    {"n_inner", OT_KEY_INTEGER, offsetof(ot_model_keys, model.intermediate_size), "null", 1,
     1 << 22, .null_text = "0", .after = "intermediate_size",
     .help = "width of the MLP; null: 4 n_embd"},
    {"n_layer", OT_KEY_INTEGER, offsetof(ot_model_keys, model.num_layers), "12", 1, OT_MAX_LAYERS,
     .also = "num_hidden_layers", .after = "num_hidden_layers", .help = "layers"},
    {"n_head", OT_KEY_INTEGER, offsetof(ot_model_keys, model.num_heads), "12", 1, 1 << 16,
     .also = "num_attention_heads", .after = "num_attention_heads", .help = "heads"},
    {"n_positions", OT_KEY_INTEGER, offsetof(ot_model_keys, model.max_positions), "1024", 1,
     INT32_MAX, .also = "max_position_embeddings", .unit = "tokens",
     .after = "max_position_embeddings", .help = "rows of the position table"},
    {"activation_function", OT_KEY_CHOICE, offsetof(ot_model_keys, model.activation), "gelu_new",
     .choices = ot_activations, .after = "hidden_activation", .help = "activation of the MLP"},
    {"layer_norm_epsilon", OT_KEY_REAL, offsetof(ot_model_keys, model.norm_epsilon), "1e-05", 0, 1,
     .above_minimum = true, .after = "rms_norm_eps", .help = "added to the variance in norms"},
    {"scale_attn_weights", OT_KEY_BOOL, offsetof(ot_model_keys, scale_attention), "true",
     .after = "mlp_bias", .help = "attention scores are divided by sqrt(head width)"},
    {"attn_pdrop", OT_KEY_REAL, offsetof(ot_model_keys, model.attention_dropout), "0.1", 0, 1,
     .below_maximum = true, .after = "attention_dropout",
     .help = "share of attention probabilities dropped"},
    {"embd_pdrop", OT_KEY_REAL, offsetof(ot_model_keys, model.embedding_dropout), "0.1", 0, 1,
     .below_maximum = true, .after = "attention_dropout",
     .help = "share of embedding values dropped"},
    {"scale_attn_by_inverse_layer_idx", OT_KEY_FIXED, .choices = ot_only_false,
     .help = "attention scores have one scale in all layers"},
    {"reorder_and_upcast_attn", OT_KEY_FIXED, .choices = ot_only_false,
     .help = "attention is computed in the run's precision"},
    {0},
};

static const ot_role_names names[OT_ROLES] = {
    [OT_ROLE_EMBEDDING] = {.part = {"transformer.wte"}},
    [OT_ROLE_POSITIONS] = {.part = {"transformer.wpe"}},
    [OT_ROLE_ATTENTION_NORM] = {.part = {"ln_1"}},
    [OT_ROLE_QKV] = {.part = {"attn.c_attn"}, .transposed = true},
    [OT_ROLE_ATTENTION_OUTPUT] = {.part = {"attn.c_proj"}, .transposed = true},
    [OT_ROLE_MLP_NORM] = {.part = {"ln_2"}},
    [OT_ROLE_GATE_UP] = {.part = {"mlp.c_fc"}, .transposed = true},
    [OT_ROLE_DOWN] = {.part = {"mlp.c_proj"}, .transposed = true},
    [OT_ROLE_FINAL_QUERY] = {.part = {"transformer.residual"}},
    [OT_ROLE_FINAL_NORM] = {.part = {"transformer.ln_f"}},
};

const ot_family_row ot_family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .norm = OT_NORM_LAYERNORM,
    .all_biases = true,
    .learned_positions = true,
    .scaled_residuals = true,
    .keys = "resid_pdrop",
    .defaults = defaults,
    .own = own,
    .layers = "transformer.h",
    .names = names,
};
