// SPDX-License-Identifier: Apache-2.0
// The table of HF keys: their families, their spellings, and the defaults of transformers
// (tools/check_model_defaults.py compares them with transformers itself). Entries are in the order
// in which a resolved model is printed; keys of one family alone are in its file of families/. Keys
// without an HF spelling are called moe_* or attention_residual*.
#include "describe/model_keys.h"

#include "base/text.h"
#include "describe/family.h"

const char *const ot_activations[] = {"gelu|gelu_python", "gelu_pytorch_tanh|gelu_new",
                                      "silu|swish", "relu", NULL};
static const char *const layer_types[] = {"full_attention|attention", "sliding_attention", NULL};
static const char *const dtypes[] = {"fp32", "fp64", "bf16", "fp16", NULL};
static const char *const residuals[] = {"none", "block", NULL};
static const char *const rope_types[] = {"default", "linear", "llama3", "yarn", NULL};
static const char *const routings[] = {"dropless", "drop_by_position", "drop_by_score",
                                       "expert_choice", NULL};
static const char *const balances[] = {"none", "aux_loss", "bias", NULL};
static const char *const aux_scales[] = {"layers", "transformers", NULL};

// The only allowed values of some keys.
const char *const ot_only_false[] = {"false", "null", NULL};
const char *const ot_only_true[] = {"true", NULL};
const char *const ot_only_null[] = {"null", NULL};
const char *const ot_only_zero[] = {"0", "0.0", "null", NULL};
static const char *const only_one[] = {"1", NULL};
static const char *const only_one_or_null[] = {"1", "null", NULL};
static const char *const only_empty[] = {"null", "{}", NULL};
static const char *const only_sigmoid[] = {"sigmoid", NULL};
static const char *const only_noaux[] = {"noaux_tc", NULL};

// clang-format off
// ---- Rotary parameters (rope_scaling, rope_parameters) ----

enum { ROPE_KEYS = 14 };

static const ot_schema rope_of_type;

// The first ROPE_KEYS entries are one set; all entries are one set, or one set per layer type.
// Types that are not listed change the mathematics in unsupported ways.
static const ot_key rope_keys[] = {
    {"rope_type", OT_KEY_CHOICE, offsetof(ot_rope_keys, type), "default", .choices = rope_types,
     .help = "type of rotary frequencies"},
    {"type", OT_KEY_CHOICE, offsetof(ot_rope_keys, old_type), "default", .choices = rope_types,
     .help = "old name of rope_type"},
    {"rope_theta", OT_KEY_REAL, offsetof(ot_rope_keys, theta), "10000", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .help = "base of the rotary frequencies"},
    {"factor", OT_KEY_REAL, offsetof(ot_rope_keys, factor), "1", 1, OT_NO_MAXIMUM, .null_text = "1",
     .help = "scaling of positions, for all types but default"},
    {"low_freq_factor", OT_KEY_REAL, offsetof(ot_rope_keys, low_frequency_factor), "1",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "1",
     .help = "llama3: below it frequencies are fully scaled"},
    {"high_freq_factor", OT_KEY_REAL, offsetof(ot_rope_keys, high_frequency_factor), "4",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "4",
     .help = "llama3: above it frequencies stay"},
    {"original_max_position_embeddings", OT_KEY_INTEGER, offsetof(ot_rope_keys, original_positions),
     "null", 1, INT32_MAX, .null_text = "0", .unit = "tokens",
     .help = "llama3, yarn: length before stretching"},
    {"partial_rotary_factor", OT_KEY_REAL, offsetof(ot_rope_keys, partial_rotary), "1", 0, 1,
     .above_minimum = true, .null_text = "1", .help = "share of a head that rotates"},
    {"beta_fast", OT_KEY_REAL, offsetof(ot_rope_keys, beta_fast), "32", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .null_text = "32",
     .help = "yarn: frequencies with more turns than this stay"},
    {"beta_slow", OT_KEY_REAL, offsetof(ot_rope_keys, beta_slow), "1", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .null_text = "1",
     .help = "yarn: frequencies with fewer turns than this are stretched in full"},
    {"mscale", OT_KEY_REAL, offsetof(ot_rope_keys, mscale), "0", 0, OT_NO_MAXIMUM, .null_text = "0",
     .help = "yarn: growth of rotated elements; 0 with mscale_all_dim 0: 1"},
    {"mscale_all_dim", OT_KEY_REAL, offsetof(ot_rope_keys, mscale_all), "0", 0, OT_NO_MAXIMUM,
     .null_text = "0",
     .help = "yarn: growth that is taken from rotated elements, deepseek_v3: and given to scores"},
    {"truncate", OT_KEY_BOOL, offsetof(ot_rope_keys, truncate), "true", .null_text = "true",
     .help = "yarn: the blended range is rounded to whole pairs"},
    {"attention_factor", OT_KEY_REAL, offsetof(ot_rope_keys, attention_factor), "0",
     0, OT_NO_MAXIMUM, .null_text = "0",
     .help = "yarn: scale of rotated elements; must match factor and mscale"},
    {"full_attention", OT_KEY_OBJECT, offsetof(ot_rope_group, full), .object = &rope_of_type,
     .null_text = "", .help = "of layers with full attention"},
    {"sliding_attention", OT_KEY_OBJECT, offsetof(ot_rope_group, sliding), .object = &rope_of_type,
     .null_text = "", .help = "of layers with a window"},
};

static const ot_schema rope_of_type = {
    "rotary set", rope_keys, ROPE_KEYS, .size = sizeof(ot_rope_keys)};
static const ot_schema rope_schema = {
    "rotary parameters", rope_keys, OT_COUNT(rope_keys), .size = sizeof(ot_rope_group)};

// ---- Quantisation ----

static const ot_key quantization_keys[] = {
    {"quant_method", OT_KEY_TEXT, offsetof(ot_quantization_keys, method), "", .null_text = "",
     .help = "fp8"},
    {"fmt", OT_KEY_TEXT, offsetof(ot_quantization_keys, format), "e4m3", .null_text = "e4m3",
     .help = "e4m3"},
    {"weight_block_size", OT_KEY_INTEGER, offsetof(ot_quantization_keys, block), "", 1, 1 << 20,
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_quantization_keys, num_block),
     .null_text = "", .help = "rows and columns that share a scale"},
};

// Other keys of a method are ignored: anything but block-wise fp8 is refused.
static const ot_schema quantization_schema = {
    "quantization", quantization_keys, OT_COUNT(quantization_keys),
    .size = sizeof(ot_quantization_keys), .inert = "*"};

// ---- The model ----

static const ot_key model_keys[] = {
    {"model_type", OT_KEY_CHOICE, offsetof(ot_model_keys, model.family),
     .choice = ot_family_types, .help = "family of the model"},
    {"vocab_size", OT_KEY_INTEGER, offsetof(ot_model_keys, model.vocab_size), "32000", 1, INT32_MAX,
     .help = "rows of the embedding"},
    {"hidden_size", OT_KEY_INTEGER, offsetof(ot_model_keys, model.hidden_size), "4096", 1, 1 << 20,
     .variants = OT_KEYS_ROTARY, .help = "width of the residual stream"},
    {"intermediate_size", OT_KEY_INTEGER, offsetof(ot_model_keys, model.intermediate_size), "11008",
     1, 1 << 22, .variants = OT_KEYS_ROTARY, .help = "width of the MLP"},
    {"num_hidden_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, model.num_layers), "32",
     1, OT_MAX_LAYERS, .variants = OT_KEYS_ROTARY, .help = "layers"},
    {"num_attention_heads", OT_KEY_INTEGER, offsetof(ot_model_keys, model.num_heads), "32", 1,
     1 << 16, .variants = OT_KEYS_ROTARY, .help = "query heads"},
    {"num_key_value_heads", OT_KEY_INTEGER, offsetof(ot_model_keys, model.num_kv_heads), "null",
     1, 1 << 16, .null_text = "0", .variants = OT_KEYS_ROTARY,
     .help = "key and value heads; null: as many as query heads"},
    {"head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, model.head_dim), "null", 1, 1 << 16,
     .null_text = "0", .variants = OT_KEYS_ROTARY,
     .help = "width of a head; null: hidden_size / num_attention_heads"},
    {"max_position_embeddings", OT_KEY_INTEGER, offsetof(ot_model_keys, model.max_positions),
     "2048", 1, INT32_MAX, .unit = "tokens", .variants = OT_KEYS_ROTARY,
     .help = "maximum sequence length"},
    {"hidden_act", OT_KEY_CHOICE, offsetof(ot_model_keys, model.activation), "silu",
     .choices = ot_activations, .variants = OT_KEYS_ROTARY,
     .help = "activation of the MLP"},
    {"hidden_activation", OT_KEY_CHOICE, offsetof(ot_model_keys, model.activation),
     "gelu_pytorch_tanh",
     .choices = ot_activations, .variants = OT_KEYS_NAMED, .help = "activation of the MLP"},
    {"rms_norm_eps", OT_KEY_REAL, offsetof(ot_model_keys, model.norm_epsilon), "1e-06", 0, 1,
     .above_minimum = true, .variants = OT_KEYS_ROTARY,
     .help = "added to the mean square in norms"},
    {"initializer_range", OT_KEY_REAL, offsetof(ot_model_keys, model.initializer_range), "0.02", 0,
     1, .above_minimum = true, .help = "standard deviation of initial weights"},
    {"tie_word_embeddings", OT_KEY_BOOL, offsetof(ot_model_keys, model.tie_word_embeddings),
     "false", .help = "the output head is the embedding"},
    {"attention_bias", OT_KEY_BOOL, offsetof(ot_model_keys, model.output_bias), "false",
     .variants = OT_KEYS_NAMED, .help = "biases on the attention projections"},
    {"mlp_bias", OT_KEY_BOOL, offsetof(ot_model_keys, model.mlp_bias), "false",
     .variants = OT_KEYS_NAMED, .help = "biases in the MLP"},
    {"query_pre_attn_scalar", OT_KEY_REAL, offsetof(ot_model_keys, query_scalar), "256",
     0, OT_NO_MAXIMUM, .above_minimum = true, .variants = OT_KEYS_NAMED,
     .help = "attention scores are divided by its square root"},
    {"rope_theta", OT_KEY_REAL, offsetof(ot_model_keys, rope_theta), "10000", 0, OT_NO_MAXIMUM,
     .above_minimum = true, .variants = OT_KEYS_ROTARY, .help = "base of the rotary frequencies"},
    {"rope_scaling", OT_KEY_OBJECT, offsetof(ot_model_keys, rope_scaling), .object = &rope_schema,
     .null_text = "", .variants = OT_KEYS_ROTARY,
     .help = "scaling of positions, in the spelling of transformers 4"},
    {"rope_parameters", OT_KEY_OBJECT, offsetof(ot_model_keys, rope_parameters),
     .object = &rope_schema, .null_text = "", .variants = OT_KEYS_ROTARY,
     .help = "rotary parameters in the spelling of transformers 5"},
    {"sliding_window", OT_KEY_INTEGER, offsetof(ot_model_keys, sliding_window), "4096",
     1, INT32_MAX, .null_text = "0", .unit = "tokens",
     .variants = OT_KEYS_NAMED,
     .help = "keys visible to a query of a sliding layer, itself included"},
    {"use_sliding_window", OT_KEY_BOOL, offsetof(ot_model_keys, use_sliding_window), "false",
     .variants = OT_KEYS_NAMED, .help = "false: no layer has a window"},
    {"max_window_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, max_window_layers), "28",
     0, INT32_MAX, .variants = OT_KEYS_NAMED,
     .help = "layers before the first with a window"},
    {"layer_types", OT_KEY_CHOICE, offsetof(ot_model_keys, layer_types), "", .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_model_keys, num_layer_types), .choices = layer_types,
     .null_text = "", .variants = OT_KEYS_NAMED,
     .help = "attention of each layer, instead of the rules above"},
    {"attention_dropout", OT_KEY_REAL, offsetof(ot_model_keys, model.attention_dropout), "0", 0, 1,
     .below_maximum = true, .null_text = "0", .variants = OT_KEYS_ROTARY,
     .help = "share of attention probabilities dropped"},
    {"resid_pdrop", OT_KEY_REAL, offsetof(ot_model_keys, model.residual_dropout), "0.1", 0, 1,
     .below_maximum = true, .variants = OT_KEYS_NAMED,
     .help = "share of values dropped where a branch joins"},
    {"attention_residuals", OT_KEY_CHOICE, offsetof(ot_model_keys, residuals), "none",
     .choices = residuals, .variants = OT_KEYS_ROTARY,
     .help = "input of a sub-layer: none: the residual sum; block: a learned mix of the outputs "
             "of blocks of sub-layers"},
    {"attention_residual_block_size", OT_KEY_INTEGER, offsetof(ot_model_keys, residual_block_size),
     "null", 1, 2 * OT_MAX_LAYERS, .null_text = "0", .unit = "sub-layers",
     .variants = OT_KEYS_ROTARY,
     .help = "attention and MLP are one each; null: the size that gives 8 blocks"},
    {"dtype", OT_KEY_DTYPE, offsetof(ot_model_keys, model.dtype), "fp32", .also = "torch_dtype",
     .choices = dtypes, .null_text = "fp32", .help = "type of the weights in exported files"},
    {"bos_token_id", OT_KEY_INTEGER, offsetof(ot_model_keys, model.bos_id), "null", 0, INT32_MAX,
     .null_text = "-1", .help = "token that starts a text"},
    {"eos_token_id", OT_KEY_INTEGER, offsetof(ot_model_keys, eos_id), "null", 0, INT32_MAX,
     .shape = OT_SHAPE_LIST, .count_offset = offsetof(ot_model_keys, num_eos), .null_text = "-1",
     .help = "tokens that end a text"},
    {"pad_token_id", OT_KEY_INTEGER, offsetof(ot_model_keys, model.pad_id), "null", -1, INT32_MAX,
     .null_text = "-1", .help = "padding token; not used"},

    // Keys whose other values would change the mathematics.
    {"partial_rotary_factor", OT_KEY_FIXED, .choices = only_one_or_null, .variants = OT_KEYS_ROTARY,
     .help = "whole heads rotate"},
    {"use_bidirectional_attention", OT_KEY_FIXED, .choices = ot_only_false,
     .variants = OT_KEYS_NAMED, .help = "attention is causal"},
    {"attention_bias", OT_KEY_FIXED, .choices = ot_only_false,
     .variants = OT_KEYS_NO_BIAS, .help = "mistral, mixtral and phi3 have no biases"},
    {"add_cross_attention", OT_KEY_FIXED, .choices = ot_only_false, .help = "there is no encoder"},
    {"is_encoder_decoder", OT_KEY_FIXED, .choices = ot_only_false, .help = "there is no encoder"},
    {"pruned_heads", OT_KEY_FIXED, .choices = only_empty, .help = "every layer has all its heads"},
    {"per_layer_config", OT_KEY_FIXED, .choices = only_empty, .help = "all layers have one shape"},
    {"quantization_config", OT_KEY_OBJECT, offsetof(ot_model_keys, quantization),
     .object = &quantization_schema, .null_text = "",
     .help = "how weights in files are quantised; fp8 in blocks is dequantised"},
    {"auto_map", OT_KEY_FIXED, .choices = ot_only_null, .help = "remote code is not supported"},

    // Experts and latent attention.
    {"num_local_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.num_experts), "8",
     1, OT_MAX_EXPERTS, .also = "num_experts", .variants = OT_KEYS_NAMED,
     .help = "experts per layer"},
    {"num_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.num_experts), "128", 1,
     OT_MAX_EXPERTS,
     .also = "num_local_experts", .variants = OT_KEYS_NAMED,
     .help = "experts per layer"},
    {"n_routed_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.num_experts), "256",
     1, OT_MAX_EXPERTS, .also = "num_experts num_local_experts", .variants = OT_KEYS_GROUPED,
     .help = "routed experts per layer"},
    {"num_experts_per_tok", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.experts_per_token),
     "8", 1, OT_MAX_EXPERTS, .variants = OT_KEYS_EXPERTS, .help = "routed experts per token"},
    {"moe_intermediate_size", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.expert_size), "768",
     1, 1 << 22, .variants = OT_KEYS_NAMED,
     .help = "width of an expert"},
    {"n_shared_experts", OT_KEY_INTEGER, offsetof(ot_model_keys, shared_experts), "1", 0, 1 << 10,
     .variants = OT_KEYS_GROUPED, .help = "shared experts"},
    {"first_k_dense_replace", OT_KEY_INTEGER, offsetof(ot_model_keys, first_dense), "3",
     0, OT_MAX_LAYERS, .variants = OT_KEYS_GROUPED,
     .help = "layers before the first with experts"},
    {"decoder_sparse_step", OT_KEY_INTEGER, offsetof(ot_model_keys, sparse_step), "1",
     1, OT_MAX_LAYERS, .variants = OT_KEYS_NAMED,
     .help = "interval of layers with experts"},
    {"mlp_only_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, dense_layers), "",
     0, OT_MAX_LAYERS - 1, .shape = OT_SHAPE_LIST,
     .count_offset = offsetof(ot_model_keys, num_dense_layers), .null_text = "",
     .variants = OT_KEYS_NAMED, .help = "layers without experts"},
    {"norm_topk_prob", OT_KEY_BOOL, offsetof(ot_model_keys, model.moe.renormalise), "false",
     .null_text = "false",
     .variants = OT_KEYS_NAMED, .help = "gates of a token are divided by their sum"},
    {"routed_scaling_factor", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.scale), "2.5",
     0, OT_NO_MAXIMUM, .above_minimum = true, .variants = OT_KEYS_GROUPED,
     .help = "multiplies gates"},
    {"n_group", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.num_groups), "8", 1,
     OT_MAX_EXPERTS, .variants = OT_KEYS_GROUPED, .help = "groups of experts"},
    {"topk_group", OT_KEY_INTEGER, offsetof(ot_model_keys, model.moe.groups_per_token), "4",
     1, OT_MAX_EXPERTS, .variants = OT_KEYS_GROUPED,
     .help = "number of groups that a token's experts are chosen from"},
    {"router_aux_loss_coef", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.aux_coefficient),
     "0.001", 0, OT_NO_MAXIMUM,
     .variants = OT_KEYS_NAMED,
     .help = "weight of the load-balancing loss, which is per sequence, and enabled "
             "regardless of output_router_logits; with moe_balance bias 0 unless given"},
    {"aux_loss_alpha", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.aux_coefficient), "0.001",
     0, OT_NO_MAXIMUM, .also = "router_aux_loss_coef", .variants = OT_KEYS_NAMED,
     .help = "weight of the load-balancing loss, which is per sequence, and enabled "
             "regardless of output_router_logits; with moe_balance bias 0 unless given"},
    {"moe_aux_loss_scale", OT_KEY_CHOICE, offsetof(ot_model_keys, model.moe.aux_scale), "layers",
     .choices = aux_scales, .variants = OT_KEYS_EXPERTS,
     .help = "what router_aux_loss_coef multiplies: layers: each layer's E sum f P, f fractions of "
             "slots; transformers: k times their mean over layers"},
    {"router_z_loss_coef", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.z_coefficient), "0",
     0, OT_NO_MAXIMUM, .variants = OT_KEYS_EXPERTS,
     .help = "weight of the mean squared log-sum-exp of router logits"},
    {"moe_routing", OT_KEY_CHOICE, offsetof(ot_model_keys, model.moe.routing), "dropless",
     .choices = routings, .variants = OT_KEYS_EXPERTS,
     .help = "how tokens beyond an expert's capacity are handled, or who chooses"},
    {"moe_capacity_factor", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.capacity_factor), "null",
     0, OT_NO_MAXIMUM, .above_minimum = true, .null_text = "0", .variants = OT_KEYS_EXPERTS,
     .help = "expert capacity over the even share; null: 1.25, expert_choice 1"},
    {"moe_balance", OT_KEY_CHOICE, offsetof(ot_model_keys, balance), "auto", .choices = balances,
     .variants = OT_KEYS_EXPERTS,
     .help = "load balancing of experts; auto: aux_loss, deepseek_v3 bias, expert_choice "
             "none"},
    {"moe_bias_update_rate", OT_KEY_REAL, offsetof(ot_model_keys, model.moe.bias_rate), "0.001",
     0, OT_NO_MAXIMUM, .variants = OT_KEYS_EXPERTS,
     .help = "moe_balance bias: change of a bias per step"},
    {"kv_lora_rank", OT_KEY_INTEGER, offsetof(ot_model_keys, model.mla.kv_rank), "512", 1, 1 << 20,
     .variants = OT_KEYS_LATENT, .help = "latent dims of keys and values per token"},
    {"q_lora_rank", OT_KEY_INTEGER, offsetof(ot_model_keys, model.mla.q_rank), "1536", 1, 1 << 20,
     .null_text = "0", .variants = OT_KEYS_LATENT,
     .help = "latent dims of queries; null: projected in one step"},
    {"qk_nope_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, model.mla.nope_dim), "128", 1,
     1 << 16, .variants = OT_KEYS_LATENT, .help = "elements of a head without rotation"},
    {"qk_rope_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, model.mla.rope_dim), "64", 2,
     1 << 16, .variants = OT_KEYS_LATENT, .help = "elements of a head with rotation"},
    {"v_head_dim", OT_KEY_INTEGER, offsetof(ot_model_keys, model.mla.v_dim), "128", 1, 1 << 16,
     .variants = OT_KEYS_LATENT, .help = "width of a head of values"},
    {"rope_interleave", OT_KEY_BOOL, offsetof(ot_model_keys, model.mla.interleaved), "true",
     .null_text = "false", .variants = OT_KEYS_LATENT,
     .help = "elements that rotate together are adjacent"},
    {"num_nextn_predict_layers", OT_KEY_INTEGER, offsetof(ot_model_keys, model.prediction_layers),
     "1",
     0, OT_MAX_LAYERS, .also = "num_mtp_layers", .null_text = "0", .variants = OT_KEYS_GROUPED,
     .help = "multi-token prediction layers after the last; not loaded from files"},
    {"scoring_func", OT_KEY_FIXED, .choices = only_sigmoid, .variants = OT_KEYS_GROUPED,
     .help = "scores are sigmoids"},
    {"topk_method", OT_KEY_FIXED, .choices = only_noaux, .variants = OT_KEYS_GROUPED,
     .help = "experts are chosen by score and bias in the best groups"},
    {"moe_layer_freq", OT_KEY_FIXED, .choices = only_one, .variants = OT_KEYS_GROUPED,
     .help = "every layer after the dense ones has experts"},
    {"seq_aux", OT_KEY_FIXED, .choices = ot_only_true, .variants = OT_KEYS_GROUPED,
     .help = "the load-balancing loss is per sequence"},
};
// clang-format on

// The family with this model_type spelling, or -1.
static int family_called(const char *name) {
  const char *types;
  for (int i = 0; (types = ot_family_types(i)) != NULL; i++) {
    if (ot_choice_matches(types, name)) return i;
  }
  return -1;
}

// The model_type of a map that has only architectures: ["LlamaForCausalLM"].
static const char *implied_type(const ot_node *tree) {
  const ot_node *const list = ot_node_child(tree, "architectures");
  const ot_node *const first = list && list->kind == OT_NODE_LIST ? list->first : NULL;
  if (!first || !first->text) return NULL;
  for (int i = 0; i < OT_FAMILY_COUNT; i++) {
    if (ot_text_equal(ot_family_architecture((ot_family)i), first->text)) {
      return ot_family_name((ot_family)i);
    }
  }
  return NULL;
}

static int variant_of(const ot_node *map) {
  const ot_node *const node = ot_node_child(map, "model_type");
  const char *const name = node ? node->text : implied_type(map);
  const int family = name ? family_called(name) : -1;
  return family >= 0 ? ot_family_variant((ot_family)family) : 0;
}

static ot_status foreign_hint(const ot_key *key) {
  char names[256] = "";
  int64_t length = 0;
  if (key->variants == OT_KEYS_EXPERTS) {
    return ot_fail_hint(OT_USAGE, "this model has no experts: leave the key out");
  }
  for (int i = 0; i < OT_FAMILY_COUNT; i++) {
    const int variant = ot_family_variant((ot_family)i);
    if (ot_schema_find(&ot_model_schema, variant, key->name) != key) continue;
    length += ot_text_format(names + length, OT_COUNT(names) - length, "%s%s",
                             length > 0 ? ", " : "", ot_family_name((ot_family)i));
  }
  return ot_fail_hint(OT_USAGE, "leave the key out: it is one of %s", names);
}

const ot_schema ot_model_schema = {
    .name = "model",
    .keys = model_keys,
    .num_keys = OT_COUNT(model_keys),
    .size = sizeof(ot_model_keys),
    .inert = ot_inert_model_keys,
    .unknown_hint =
        "a key that does not change the mathematics is accepted with "
        "--set model.%s=ignore",
    .foreign_hint = foreign_hint,
    .variant = variant_of,
    .has = ot_family_has_key,
    .added = ot_family_added_key,
    .fallback = ot_family_fallback,
};

ot_status ot_model_prepare(ot_node *tree, ot_arena *arena, const char *path) {
  const char *const dot = path[0] == '\0' ? "" : ".";
  const char *const place = ot_node_place(arena, tree);
  ot_node *node = ot_node_child(tree, "model_type");
  const char *const implied = node ? NULL : implied_type(tree);
  if (implied) {
    node = ot_node_put(arena, tree, "model_type", ot_node_text(arena, implied));
    node->source = "from architectures";
  }
  if (!node) {
    ot_fail(OT_USAGE, "%s%smodel_type is required (%s)", path, dot, place);
    return ot_fail_hint(OT_USAGE, "one of %s", ot_key_range(&model_keys[0], arena));
  }
  const char *const name = node->text ? node->text : "";
  if (family_called(name) >= 0) return OT_OK;
  ot_fail(OT_USAGE, "%s%smodel_type: \"%s\" is not supported; supported: %s (%s)", path, dot, name,
          ot_key_range(&model_keys[0], arena), ot_node_place(arena, node));
  const char *nearest = NULL;
  int best = 3;
  const char *types;
  for (int i = 0; (types = ot_family_types(i)) != NULL; i++) {
    ot_text_nearest(name, types, &nearest, &best);
  }
  return nearest ? ot_fail_hint(OT_USAGE, "did you mean \"%s\"?", nearest) : OT_USAGE;
}
