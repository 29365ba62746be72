// SPDX-License-Identifier: Apache-2.0
// Rows of the table of HF keys about experts and latent attention. What has no HF spelling is
// called moe_*.
#include "describe/model_tables.h"

static const char *const routings[] = {"dropless", "drop_by_position", "drop_by_score",
                                       "expert_choice", NULL};
static const char *const balances[] = {"none", "aux_loss", "bias", NULL};
static const char *const aux_scales[] = {"layers", "transformers", NULL};
static const char *const only_sigmoid[] = {"sigmoid", NULL};
static const char *const only_noaux[] = {"noaux_tc", NULL};
static const char *const only_one[] = {"1", NULL};
static const char *const only_true[] = {"true", NULL};
static const char *const only_zero[] = {"0", "0.0", "null", NULL};
static const char *const only_null[] = {"null", NULL};

// clang-format off
const ot_key ot_moe_keys[OT_NUM_MOE_KEYS] = {
    {"num_local_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, num_experts), "8",
     1, OT_MAX_EXPERTS, .also = "num_experts", .variants = OT_IN_MIXTRAL,
     .help = "experts of a layer"},
    {"num_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, num_experts), "128", 1, OT_MAX_EXPERTS,
     .also = "num_local_experts", .variants = OT_IN_QWEN3_MOE | OT_IN_OLMOE,
     .help = "experts of a layer"},
    {"n_routed_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, num_experts), "256",
     1, OT_MAX_EXPERTS, .also = "num_experts num_local_experts", .variants = OT_IN_DEEPSEEK_V3,
     .help = "routed experts of a layer"},
    {"num_experts_per_tok", OT_KEY_INTEGER, offsetof(ot_model_keys, experts_per_token), "8",
     1, OT_MAX_EXPERTS, .variants = OT_IN_MOE, .help = "routed experts of a token"},
    {"moe_intermediate_size", OT_KEY_INTEGER, offsetof(ot_model_keys, expert_size), "768",
     1, 1 << 22, .variants = OT_IN_QWEN3_MOE | OT_IN_DEEPSEEK_V3, .help = "width of an expert"},
    {"n_shared_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, shared_experts), "1", 0, 1 << 10,
     .variants = OT_IN_DEEPSEEK_V3, .help = "experts of all tokens"},
    {"first_k_dense_replace", OT_KEY_INTEGER, offsetof(ot_model_keys, first_dense), "3",
     0, OT_MAX_LAYERS, .variants = OT_IN_DEEPSEEK_V3,
     .help = "layers before the first with experts"},
    {"decoder_sparse_step", OT_KEY_INTEGER, offsetof(ot_model_keys, sparse_step), "1",
     1, OT_MAX_LAYERS, .variants = OT_IN_QWEN3_MOE, .help = "every so many layers one has experts"},
    {"mlp_only_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, dense_layers), "",
     0, OT_MAX_LAYERS - 1, .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_model_keys, num_dense_layers), .null_text = "",
     .variants = OT_IN_QWEN3_MOE, .help = "layers without experts"},
    {"norm_topk_prob", OT_KEY_BOOL, offsetof(ot_model_keys, renormalise), "false",
     .null_text = "false", .variants = OT_IN_QWEN3_MOE | OT_IN_OLMOE | OT_IN_DEEPSEEK_V3,
     .help = "gates of a token are divided by their sum"},
    {"routed_scaling_factor", OT_KEY_REAL, offsetof(ot_model_keys, gate_scale), "2.5",
     0, OT_NO_MAXIMUM, .above_minimum = true, .variants = OT_IN_DEEPSEEK_V3,
     .help = "multiplies gates"},
    {"n_group", OT_KEY_INTEGER, offsetof(ot_model_keys, num_groups), "8", 1, OT_MAX_EXPERTS,
     .variants = OT_IN_DEEPSEEK_V3, .help = "groups of experts"},
    {"topk_group", OT_KEY_INTEGER, offsetof(ot_model_keys, groups_per_token), "4",
     1, OT_MAX_EXPERTS, .variants = OT_IN_DEEPSEEK_V3,
     .help = "groups that the experts of a token are in"},
    {"router_aux_loss_coef", OT_KEY_REAL, offsetof(ot_model_keys, aux_coefficient), "0.001",
     0, OT_NO_MAXIMUM, .variants = OT_IN_MIXTRAL | OT_IN_QWEN3_MOE | OT_IN_OLMOE,
     .help = "weight of the load-balancing loss, which is of each sequence by itself, and on "
             "whatever output_router_logits says; with moe_balance bias 0 unless given"},
    {"aux_loss_alpha", OT_KEY_REAL, offsetof(ot_model_keys, aux_coefficient), "0.001",
     0, OT_NO_MAXIMUM, .also = "router_aux_loss_coef", .variants = OT_IN_DEEPSEEK_V3,
     .help = "weight of the load-balancing loss, which is of each sequence by itself, and on "
             "whatever output_router_logits says; with moe_balance bias 0 unless given"},
    {"moe_aux_loss_scale", OT_KEY_CHOICE, offsetof(ot_model_keys, aux_scale), "layers",
     .choices = aux_scales, .variants = OT_IN_MOE,
     .help = "what router_aux_loss_coef multiplies: layers: each layer's E sum f P, f shares of "
             "slots; transformers: k times their mean over layers"},
    {"router_z_loss_coef", OT_KEY_REAL, offsetof(ot_model_keys, z_coefficient), "0",
     0, OT_NO_MAXIMUM, .variants = OT_IN_MOE,
     .help = "weight of the mean squared log-sum-exp of router logits"},
    {"moe_routing", OT_KEY_CHOICE, offsetof(ot_model_keys, routing), "dropless",
     .choices = routings, .variants = OT_IN_MOE,
     .help = "what happens to rows beyond the capacity of an expert, or who chooses"},
    {"moe_capacity_factor", OT_KEY_REAL, offsetof(ot_model_keys, capacity_factor), "null",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "0", .variants = OT_IN_MOE,
     .help = "rows of an expert, in even shares; null: 1.25, expert_choice 1"},
    {"moe_balance", OT_KEY_CHOICE, offsetof(ot_model_keys, balance), "auto", .choices = balances,
     .variants = OT_IN_MOE,
     .help = "what keeps experts equally busy; auto: aux_loss, deepseek_v3 bias, expert_choice "
             "none"},
    {"moe_bias_update_rate", OT_KEY_REAL, offsetof(ot_model_keys, bias_rate), "0.001",
     0, OT_NO_MAXIMUM, .variants = OT_IN_MOE,
     .help = "moe_balance bias: how far a bias moves after a step"},
    {"kv_lora_rank", OT_KEY_INTEGER, offsetof(ot_model_keys, kv_rank), "512", 1, 1 << 20,
     .variants = OT_IN_DEEPSEEK_V3,
     .help = "numbers that the keys and values of a token are made of"},
    {"q_lora_rank", OT_KEY_INTEGER, offsetof(ot_model_keys, q_rank), "1536", 1, 1 << 20,
     .null_text = "0", .variants = OT_IN_DEEPSEEK_V3,
     .help = "numbers that queries are made of; null: projected in one step"},
    {"qk_nope_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, nope_dim), "128", 1, 1 << 16,
     .variants = OT_IN_DEEPSEEK_V3, .help = "elements of a head that do not rotate"},
    {"qk_rope_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, rope_dim), "64", 2, 1 << 16,
     .variants = OT_IN_DEEPSEEK_V3, .help = "elements of a head that rotate"},
    {"v_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, v_dim), "128", 1, 1 << 16,
     .variants = OT_IN_DEEPSEEK_V3, .help = "width of a head of values"},
    {"rope_interleave", OT_KEY_BOOL, offsetof(ot_model_keys, interleaved), "true",
     .null_text = "false", .variants = OT_IN_DEEPSEEK_V3,
     .help = "elements that rotate together stand side by side"},
    {"num_nextn_predict_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, prediction_layers), "1",
     0, OT_MAX_LAYERS, .also = "num_mtp_layers", .null_text = "0", .variants = OT_IN_DEEPSEEK_V3,
     .help = "layers after the last that predict further tokens: of files, and left out"},
    {"scoring_func", OT_KEY_FIXED, .choices = only_sigmoid, .variants = OT_IN_DEEPSEEK_V3,
     .help = "scores are sigmoids"},
    {"topk_method", OT_KEY_FIXED, .choices = only_noaux, .variants = OT_IN_DEEPSEEK_V3,
     .help = "experts are chosen by score and bias in the best groups"},
    {"moe_layer_freq", OT_KEY_FIXED, .choices = only_one, .variants = OT_IN_DEEPSEEK_V3,
     .help = "every layer after the dense ones has experts"},
    {"seq_aux", OT_KEY_FIXED, .choices = only_true, .variants = OT_IN_DEEPSEEK_V3,
     .help = "the load-balancing loss is of each sequence"},
    {"router_jitter_noise", OT_KEY_FIXED, .choices = only_zero, .variants = OT_IN_MIXTRAL,
     .help = "inputs of the router have no noise"},
    {"clip_qkv", OT_KEY_FIXED, .choices = only_null, .variants = OT_IN_OLMOE,
     .help = "queries, keys and values are not clipped"},
};
// clang-format on
