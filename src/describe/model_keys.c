// SPDX-License-Identifier: Apache-2.0
// The table of HF keys: which families have them, how each is spelled, and what transformers takes
// where a file is silent (tools/check_model_defaults.py compares with transformers itself). Rows
// are in the order in which a resolved model is printed.
#include "describe/model_keys.h"

#include "base/text.h"

enum {
  GPT2 = 1 << OT_FAMILY_GPT2,
  LLAMA = 1 << OT_FAMILY_LLAMA,
  QWEN2 = 1 << OT_FAMILY_QWEN2,
  QWEN3 = 1 << OT_FAMILY_QWEN3,
  OLMO2 = 1 << OT_FAMILY_OLMO2,
  MISTRAL = 1 << OT_FAMILY_MISTRAL,
  GEMMA3 = 1 << OT_FAMILY_GEMMA3,
  ROTARY = LLAMA | QWEN2 | QWEN3 | OLMO2 | MISTRAL | GEMMA3,
  WINDOWED = QWEN2 | QWEN3 | MISTRAL | GEMMA3,
};

static const char *const families[] = {
    "gpt2", "llama", "qwen2", "qwen3", "olmo2", "mistral|ministral", "gemma3_text", NULL};
static const char *const activations[] = {"gelu|gelu_python", "gelu_pytorch_tanh|gelu_new",
                                          "silu|swish", "relu", NULL};
static const char *const layer_types[] = {"full_attention|attention", "sliding_attention", NULL};
static const char *const dtypes[] = {"fp32", "fp64", "bf16", "fp16", NULL};
static const char *const only_false[] = {"false", "null", NULL};
static const char *const only_true[] = {"true", NULL};
static const char *const only_null[] = {"null", NULL};
static const char *const only_one[] = {"1", "null", NULL};
static const char *const only_empty[] = {"null", "{}", NULL};

static const ot_key model_keys[] = {
    {.name = "model_type",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_model_keys, family),
     .choices = families,
     .help = "family of the model"},
    {.name = "vocab_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, vocab_size),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "32000",
     .help = "rows of the embedding"},
    {.name = "hidden_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, hidden_size),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "4096",
     .help = "width of the residual stream",
     .variants = ROTARY},
    {.name = "n_embd",
     .also = "hidden_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, hidden_size),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "768",
     .help = "width of the residual stream",
     .variants = GPT2},
    {.name = "intermediate_size",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, intermediate_size),
     .minimum = 1,
     .maximum = 1 << 22,
     .fallback = "11008",
     .help = "width of the MLP",
     .variants = ROTARY},
    {.name = "n_inner",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, intermediate_size),
     .minimum = 1,
     .maximum = 1 << 22,
     .fallback = "null",
     .null_text = "0",
     .help = "width of the MLP; null: 4 n_embd",
     .variants = GPT2},
    {.name = "num_hidden_layers",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, num_layers),
     .minimum = 1,
     .maximum = OT_MAX_LAYERS,
     .fallback = "32",
     .help = "layers",
     .variants = ROTARY},
    {.name = "n_layer",
     .also = "num_hidden_layers",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, num_layers),
     .minimum = 1,
     .maximum = OT_MAX_LAYERS,
     .fallback = "12",
     .help = "layers",
     .variants = GPT2},
    {.name = "num_attention_heads",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, num_heads),
     .minimum = 1,
     .maximum = 1 << 16,
     .fallback = "32",
     .help = "query heads",
     .variants = ROTARY},
    {.name = "n_head",
     .also = "num_attention_heads",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, num_heads),
     .minimum = 1,
     .maximum = 1 << 16,
     .fallback = "12",
     .help = "heads",
     .variants = GPT2},
    {.name = "num_key_value_heads",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, num_kv_heads),
     .minimum = 1,
     .maximum = 1 << 16,
     .fallback = "null",
     .null_text = "0",
     .help = "key and value heads; null: as many as query heads",
     .variants = ROTARY},
    {.name = "head_dim",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, head_dim),
     .minimum = 1,
     .maximum = 1 << 16,
     .fallback = "null",
     .null_text = "0",
     .help = "width of a head; null: hidden_size / num_attention_heads",
     .variants = ROTARY},
    {.name = "max_position_embeddings",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, max_positions),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "2048",
     .unit = "tokens",
     .help = "longest sequence the model is meant for",
     .variants = ROTARY},
    {.name = "n_positions",
     .also = "max_position_embeddings",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, max_positions),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "1024",
     .unit = "tokens",
     .help = "rows of the position table",
     .variants = GPT2},
    {.name = "hidden_act",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_model_keys, activation),
     .choices = activations,
     .fallback = "silu",
     .help = "activation of the MLP",
     .variants = ROTARY & ~GEMMA3},
    {.name = "hidden_activation",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_model_keys, activation),
     .choices = activations,
     .fallback = "gelu_pytorch_tanh",
     .help = "activation of the MLP",
     .variants = GEMMA3},
    {.name = "activation_function",
     .type = OT_KEY_CHOICE,
     .offset = offsetof(ot_model_keys, activation),
     .choices = activations,
     .fallback = "gelu_new",
     .help = "activation of the MLP",
     .variants = GPT2},
    {.name = "rms_norm_eps",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, norm_epsilon),
     .maximum = 1,
     .above_minimum = true,
     .fallback = "1e-06",
     .help = "added to the mean square in norms",
     .variants = ROTARY},
    {.name = "layer_norm_epsilon",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, norm_epsilon),
     .maximum = 1,
     .above_minimum = true,
     .fallback = "1e-05",
     .help = "added to the variance in norms",
     .variants = GPT2},
    {.name = "initializer_range",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, initializer_range),
     .maximum = 1,
     .above_minimum = true,
     .fallback = "0.02",
     .help = "standard deviation of initial weights"},
    {.name = "tie_word_embeddings",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_model_keys, tie_word_embeddings),
     .fallback = "false",
     .help = "the output head is the embedding"},
    {.name = "attention_bias",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_model_keys, attention_bias),
     .fallback = "false",
     .help = "biases on the four attention projections",
     .variants = LLAMA | QWEN3 | OLMO2 | GEMMA3},
    {.name = "mlp_bias",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_model_keys, mlp_bias),
     .fallback = "false",
     .help = "biases in the MLP",
     .variants = LLAMA},
    {.name = "scale_attn_weights",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_model_keys, scale_attention),
     .fallback = "true",
     .help = "attention scores are divided by sqrt(head width)",
     .variants = GPT2},
    {.name = "query_pre_attn_scalar",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, query_scalar),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "256",
     .help = "attention scores are divided by its square root",
     .variants = GEMMA3},
    {.name = "rope_theta",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, rope_theta),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "10000",
     .help = "base of the rotary frequencies",
     .variants = ROTARY},
    {.name = "rope_local_base_freq",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, rope_local_theta),
     .maximum = OT_NO_MAXIMUM,
     .above_minimum = true,
     .fallback = "10000",
     .help = "the same in layers with a window",
     .variants = GEMMA3},
    {.name = "rope_scaling",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_model_keys, rope_scaling),
     .object = &ot_rope_schema,
     .null_text = "",
     .help = "stretching of positions, in the spelling of transformers 4",
     .variants = ROTARY},
    {.name = "rope_parameters",
     .type = OT_KEY_OBJECT,
     .offset = offsetof(ot_model_keys, rope_parameters),
     .object = &ot_rope_schema,
     .null_text = "",
     .help = "rotary parameters in the spelling of transformers 5",
     .variants = ROTARY},
    {.name = "sliding_window",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, sliding_window),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "4096",
     .null_text = "0",
     .unit = "tokens",
     .help = "keys that a query of a sliding layer sees, itself included",
     .variants = WINDOWED},
    {.name = "use_sliding_window",
     .type = OT_KEY_BOOL,
     .offset = offsetof(ot_model_keys, use_sliding_window),
     .fallback = "false",
     .help = "false: no layer has a window",
     .variants = QWEN2 | QWEN3},
    {.name = "max_window_layers",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, max_window_layers),
     .maximum = INT32_MAX,
     .fallback = "28",
     .help = "layers before the first with a window",
     .variants = QWEN2 | QWEN3},
    {.name = "sliding_window_pattern",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, sliding_window_pattern),
     .minimum = 1,
     .maximum = INT32_MAX,
     .fallback = "6",
     .help = "every so many layers one sees everything",
     .variants = GEMMA3},
    {.name = "layer_types",
     .type = OT_KEY_CHOICE,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_model_keys, layer_types),
     .count_offset = offsetof(ot_model_keys, num_layer_types),
     .choices = layer_types,
     .fallback = "",
     .null_text = "",
     .help = "attention of each layer, instead of the rules above",
     .variants = WINDOWED},
    {.name = "attention_dropout",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, attention_dropout),
     .maximum = 1,
     .below_maximum = true,
     .fallback = "0",
     .null_text = "0",
     .help = "share of attention probabilities dropped",
     .variants = ROTARY},
    {.name = "attn_pdrop",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, attention_dropout),
     .maximum = 1,
     .below_maximum = true,
     .fallback = "0.1",
     .help = "share of attention probabilities dropped",
     .variants = GPT2},
    {.name = "embd_pdrop",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, embedding_dropout),
     .maximum = 1,
     .below_maximum = true,
     .fallback = "0.1",
     .help = "share of embedding values dropped",
     .variants = GPT2},
    {.name = "resid_pdrop",
     .type = OT_KEY_REAL,
     .offset = offsetof(ot_model_keys, residual_dropout),
     .maximum = 1,
     .below_maximum = true,
     .fallback = "0.1",
     .help = "share of values dropped where a branch joins",
     .variants = GPT2},
    {.name = "dtype",
     .also = "torch_dtype",
     .type = OT_KEY_DTYPE,
     .offset = offsetof(ot_model_keys, dtype),
     .choices = dtypes,
     .fallback = "fp32",
     .null_text = "fp32",
     .help = "type of the weights in exported files"},
    {.name = "bos_token_id",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, bos_id),
     .maximum = INT32_MAX,
     .fallback = "null",
     .null_text = "-1",
     .help = "token that starts a text"},
    {.name = "eos_token_id",
     .type = OT_KEY_INTEGER,
     .shape = OT_SHAPE_LIST,
     .offset = offsetof(ot_model_keys, eos_id),
     .count_offset = offsetof(ot_model_keys, num_eos),
     .maximum = INT32_MAX,
     .fallback = "null",
     .null_text = "-1",
     .help = "tokens that end a text"},
    {.name = "pad_token_id",
     .type = OT_KEY_INTEGER,
     .offset = offsetof(ot_model_keys, pad_id),
     .minimum = -1,
     .maximum = INT32_MAX,
     .fallback = "null",
     .null_text = "-1",
     .help = "token that fills up a batch; not used"},

    // Keys whose other values would change the mathematics.
    {.name = "partial_rotary_factor",
     .type = OT_KEY_FIXED,
     .choices = only_one,
     .help = "whole heads rotate",
     .variants = ROTARY},
    {.name = "attn_logit_softcapping",
     .type = OT_KEY_FIXED,
     .choices = only_null,
     .help = "attention scores are not capped",
     .variants = GEMMA3},
    {.name = "final_logit_softcapping",
     .type = OT_KEY_FIXED,
     .choices = only_null,
     .help = "logits are not capped",
     .variants = GEMMA3},
    {.name = "use_bidirectional_attention",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "attention is causal",
     .variants = GEMMA3},
    {.name = "scale_attn_by_inverse_layer_idx",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "attention scores have one scale in all layers",
     .variants = GPT2},
    {.name = "reorder_and_upcast_attn",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "attention is computed in the precision of the run",
     .variants = GPT2},
    {.name = "attention_bias",
     .type = OT_KEY_FIXED,
     .choices = only_true,
     .help = "qwen2 always has biases on q, k and v",
     .variants = QWEN2},
    {.name = "attention_bias",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "mistral has no biases",
     .variants = MISTRAL},
    {.name = "use_mrope",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "positions are one number a token",
     .variants = QWEN2},
    {.name = "add_cross_attention",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "there is no encoder"},
    {.name = "is_encoder_decoder",
     .type = OT_KEY_FIXED,
     .choices = only_false,
     .help = "there is no encoder"},
    {.name = "pruned_heads",
     .type = OT_KEY_FIXED,
     .choices = only_empty,
     .help = "every layer has all its heads"},
    {.name = "per_layer_config",
     .type = OT_KEY_FIXED,
     .choices = only_empty,
     .help = "all layers have one shape"},
    {.name = "quantization_config",
     .type = OT_KEY_FIXED,
     .choices = only_null,
     .help = "weights are not quantised"},
    {.name = "auto_map",
     .type = OT_KEY_FIXED,
     .choices = only_null,
     .help = "no code comes with the model"},
};

// Keys that say nothing about the mathematics of training.
static const char inert[] =
    "_name_or_path|name_or_path|architectures|transformers_version|use_cache|"
    "cache_implementation|pretraining_tp|return_dict|output_hidden_states|"
    "output_attentions|torchscript|use_bfloat16|tf_legacy_loss|is_decoder|"
    "cross_attention_hidden_size|tie_encoder_decoder|tie_last_hidden_states|"
    "chunk_size_feed_forward|max_length|min_length|do_sample|early_stopping|num_beams|"
    "num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|"
    "repetition_penalty|length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|"
    "bad_words_ids|num_return_sequences|output_scores|return_dict_in_generate|"
    "forced_bos_token_id|forced_eos_token_id|remove_invalid_values|"
    "exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|finetuning_task|"
    "id2label|label2id|num_labels|tokenizer_class|prefix|sep_token_id|"
    "decoder_start_token_id|task_specific_params|problem_type|attn_implementation|"
    "_attn_implementation|_attn_implementation_autoset|_attn_implementation_internal|"
    "gradient_checkpointing|summary_type|summary_use_proj|summary_activation|"
    "summary_proj_to_labels|summary_first_dropout|n_ctx|_sliding_window_pattern";

// What a family takes where the row's own default is another family's (transformers 5.23; 4.x is
// the same but where a comment says otherwise).
static const struct {
  uint32_t families;
  const char *key;
  const char *text;
} family_defaults[] = {
    {GPT2, "vocab_size", "50257"},
    {QWEN2 | QWEN3, "vocab_size", "151936"},
    {OLMO2, "vocab_size", "50304"},
    {GEMMA3, "vocab_size", "262208"},
    {GEMMA3, "hidden_size", "2304"},
    {QWEN2 | QWEN3, "intermediate_size", "22016"},
    {MISTRAL, "intermediate_size", "14336"},
    {GEMMA3, "intermediate_size", "9216"},
    {GEMMA3, "num_hidden_layers", "26"},
    {GEMMA3, "num_attention_heads", "8"},
    {QWEN2 | QWEN3, "num_key_value_heads", "32"},
    {MISTRAL, "num_key_value_heads", "8"},
    {GEMMA3, "num_key_value_heads", "4"},
    {QWEN3, "head_dim", "128"},
    {GEMMA3, "head_dim", "256"},
    {QWEN2 | QWEN3, "max_position_embeddings", "32768"},
    {MISTRAL | GEMMA3, "max_position_embeddings", "131072"},
    {OLMO2, "rms_norm_eps", "1e-05"},
    {GPT2 | GEMMA3, "tie_word_embeddings", "true"},
    {GEMMA3, "rope_theta", "1000000"},
    {GPT2, "bos_token_id", "50256"},
    {LLAMA | MISTRAL, "bos_token_id", "1"},
    {GEMMA3, "bos_token_id", "2"},
    {GPT2, "eos_token_id", "50256"},
    {LLAMA | MISTRAL, "eos_token_id", "2"},
    {OLMO2, "eos_token_id", "50279"},
    {GEMMA3, "eos_token_id", "1"},
    {OLMO2, "pad_token_id", "1"},
    {GEMMA3, "pad_token_id", "0"},
};

static const char *fallback_of(const ot_key *key, uint32_t variant) {
  for (int i = 0; i < OT_COUNT(family_defaults); i++) {
    if ((family_defaults[i].families & variant) == 0) continue;
    if (ot_text_equal(family_defaults[i].key, key->name)) return family_defaults[i].text;
  }
  return NULL;
}

// The family that a spelling of model_type names, or -1.
static int family_called(const char *name) {
  for (int i = 0; families[i]; i++) {
    if (ot_choice_matches(families[i], name)) return i;
  }
  return -1;
}

static uint32_t variant_of(const ot_node *map) {
  const ot_node *const node = ot_node_child(map, "model_type");
  const int family = node && node->text ? family_called(node->text) : -1;
  return family >= 0 ? 1u << family : 0;
}

const ot_schema ot_model_schema = {
    .name = "model",
    .keys = model_keys,
    .num_keys = OT_COUNT(model_keys),
    .size = sizeof(ot_model_keys),
    .inert = inert,
    .unknown_hint =
        "a key that does not change the mathematics is accepted with "
        "--set model.%s=ignore",
    .variant = variant_of,
    .fallback = fallback_of,
};

// model_type of a map that has only architectures: ["LlamaForCausalLM"].
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
    ot_fail(OT_USAGE, "%s%smodel_type is needed (%s)", path, dot, place);
    return ot_fail_hint(OT_USAGE, "one of %s", ot_key_range(&model_keys[0], arena));
  }
  const bool known = node->text && family_called(node->text) >= 0;
  OT_CHECK(known, OT_USAGE, "%s%smodel_type: \"%s\" is not supported; supported: %s (%s)", path,
           dot, node->text ? node->text : "", ot_key_range(&model_keys[0], arena),
           ot_node_place(arena, node));
  return OT_OK;
}
