// SPDX-License-Identifier: Apache-2.0
// The model described by Megatron-LM's flags: HF keys of the nearest family, then combinations that
// no family has.
#include "base/math.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "software/megatron.h"

// Vocabulary sizes implied by the tokenizer type.
static int64_t known_vocabulary(const ot_megatron_flags *f) {
  if (f->tokenizer[0] == '\0') return f->merges[0] != '\0' ? 50257 : 0;
  if (ot_text_equal(f->tokenizer, "GPT2BPETokenizer")) return 50257;
  if (ot_text_equal(f->tokenizer, "Llama2Tokenizer")) return 32000;
  return 0;
}

static ot_status find_vocabulary(ot_import *import, const ot_megatron_flags *f, int64_t *out) {
  *out = f->padded_vocabulary;
  if (*out > 0) return OT_OK;
  int64_t vocabulary = f->vocabulary > 0 ? f->vocabulary : known_vocabulary(f);
  if (vocabulary == 0) {
    ot_fail(OT_USAGE, "vocab-size: the flags do not give the vocabulary size (%s)", import->path);
    return ot_fail_hint(OT_USAGE, "add --vocab-size N, the size of the tokenizer");
  }
  if (f->vocabulary == 0) {
    ot_import_note(import, "the vocabulary has %lld tokens, as in %s", (long long)vocabulary,
                   f->tokenizer[0] != '\0' ? f->tokenizer : "GPT-2's");
  }
  if (ot_text_equal(f->tokenizer, "NullTokenizer")) vocabulary++;  // the end-of-document token
  *out = ot_import_padded(vocabulary, f->vocabulary_multiple * f->tp);
  return OT_OK;
}

// arguments.py: 4 x hidden, or two thirds of it in multiples of 64 for a gated MLP.
static int64_t mlp_width(const ot_megatron_flags *f) {
  if (f->ffn > 0) return f->ffn;
  return f->swiglu ? 4 * f->hidden * 2 / 3 / 64 * 64 : 4 * f->hidden;
}

static int64_t expert_width(const ot_megatron_flags *f) {
  return f->expert_ffn > 0 ? f->expert_ffn : mlp_width(f);
}

static bool is_rotary(const ot_megatron_flags *f) { return f->rotary || f->position_type == 1; }

static int64_t layers_of(const ot_megatron_flags *f) { return f->layers + f->prediction_layers; }

static const char *family_name(const ot_megatron_flags *f) {
  if (f->latent) return "deepseek_v3";
  if (f->experts > 0) return f->qk_norm ? "qwen3_moe" : "mixtral";
  if (!is_rotary(f)) return "gpt2";
  if (f->qk_norm) return "qwen3";
  return f->qkv_bias && f->no_bias ? "qwen2" : "llama";
}

static const char *activation_name(const ot_megatron_flags *f) {
  return f->swiglu ? "silu" : f->squared_relu ? "relu" : f->tanh_gelu ? "gelu_new" : "gelu";
}

// HF keys of the nearest family. set_differences adds what they cannot express.
static ot_node *model_keys(ot_arena *arena, const ot_megatron_flags *f, int64_t vocabulary) {
  const bool rotary = is_rotary(f);
  ot_node *const map = ot_node_create(arena, OT_NODE_MAP);
  ot_node_put(arena, map, "model_type", ot_node_text(arena, family_name(f)));
  ot_node_put(arena, map, "vocab_size", ot_node_integer(arena, vocabulary));
  ot_node_put(arena, map, rotary ? "hidden_size" : "n_embd", ot_node_integer(arena, f->hidden));
  ot_node_put(arena, map, rotary ? "intermediate_size" : "n_inner",
              ot_node_integer(arena, f->experts > 0 && !f->qk_norm && !f->latent ? expert_width(f)
                                                                                 : mlp_width(f)));
  ot_node_put(arena, map, rotary ? "num_hidden_layers" : "n_layer",
              ot_node_integer(arena, layers_of(f)));
  ot_node_put(arena, map, rotary ? "num_attention_heads" : "n_head",
              ot_node_integer(arena, f->heads));
  const int64_t positions = f->positions > 0 ? f->positions : f->sequence;
  ot_node_put(arena, map, rotary ? "max_position_embeddings" : "n_positions",
              ot_node_integer(arena, positions));
  ot_node_put(arena, map, rotary ? "hidden_act" : "activation_function",
              ot_node_text(arena, activation_name(f)));
  ot_node_put(arena, map, rotary ? "rms_norm_eps" : "layer_norm_epsilon",
              ot_node_real(arena, f->epsilon));
  ot_node_put(arena, map, "initializer_range", ot_node_real(arena, f->initial_std));
  ot_node_put(arena, map, "tie_word_embeddings", ot_node_bool(arena, !f->untied));
  ot_node_put(arena, map, rotary ? "attention_dropout" : "attn_pdrop",
              ot_node_real(arena, f->attention_dropout));
  return map;
}

static bool is_grouped(const ot_megatron_flags *f) {
  return f->grouped || (f->deepspeed && f->groups > 0);
}

static void add_latent_keys(ot_arena *arena, const ot_megatron_flags *f, ot_node *map) {
  ot_node_put(arena, map, "rope_theta", ot_node_real(arena, f->rotary_base));
  ot_node_put(arena, map, "kv_lora_rank", ot_node_integer(arena, f->kv_rank));
  ot_node_put(
      arena, map, "q_lora_rank",
      f->q_rank > 0 ? ot_node_integer(arena, f->q_rank) : ot_node_create(arena, OT_NODE_NULL));
  ot_node_put(arena, map, "qk_nope_head_dim", ot_node_integer(arena, f->key_dim));
  ot_node_put(arena, map, "qk_rope_head_dim", ot_node_integer(arena, f->rope_dim));
  ot_node_put(arena, map, "v_head_dim", ot_node_integer(arena, f->value_dim));
}

static void add_family_keys(ot_arena *arena, const ot_megatron_flags *f, ot_node *map) {
  if (f->latent) {
    add_latent_keys(arena, f, map);
    return;
  }
  if (!is_rotary(f)) {
    ot_node_put(arena, map, "embd_pdrop", ot_node_real(arena, f->hidden_dropout));
    ot_node_put(arena, map, "resid_pdrop", ot_node_real(arena, f->hidden_dropout));
    return;
  }
  const int64_t groups = is_grouped(f) ? (f->groups > 0 ? f->groups : 1) : f->heads;
  const int64_t width = f->channels > 0 ? f->channels : f->hidden / f->heads;
  ot_node_put(arena, map, "num_key_value_heads", ot_node_integer(arena, groups));
  ot_node_put(arena, map, "head_dim", ot_node_integer(arena, width));
  ot_node_put(arena, map, "rope_theta", ot_node_real(arena, f->rotary_base));
  if (ot_text_equal(family_name(f), "llama") && !f->no_bias) {
    ot_node_put(arena, map, "attention_bias", ot_node_bool(arena, true));
    ot_node_put(arena, map, "mlp_bias", ot_node_bool(arena, true));
  }
}

// Megatron combines freely what HF families fix.
static void set_differences(const ot_megatron_flags *f, ot_model *model) {
  model->gated_mlp = f->swiglu;
  model->norm = f->normalization == 1 ? OT_NORM_RMSNORM : OT_NORM_LAYERNORM;
  if (!f->latent) model->qk_norm = f->qk_norm ? OT_QK_NORM_HEAD : OT_QK_NORM_NONE;
  model->qkv_bias = f->qkv_bias || !f->no_bias;
  model->output_bias = !f->no_bias;
  model->mlp_bias = !f->no_bias;
  model->embedding_dropout = f->hidden_dropout;
  model->residual_dropout = f->hidden_dropout;
  model->moe.shared_size = f->shared_ffn;
  if (f->router_groups > 1) {
    model->moe.num_groups = f->router_groups;
    model->moe.groups_per_token = f->router_group_topk > 0 ? f->router_group_topk : 1;
  }
  if (f->latent) return;
  model->num_kv_heads = is_grouped(f) ? (f->groups > 0 ? f->groups : 1) : f->heads;
  if (f->channels > 0) model->head_dim = f->channels;
  model->rotary_dim = model->learned_positions ? 0 : model->head_dim;
  model->attention_scale = 1 / ot_sqrt((double)model->head_dim);
}

static void add_deepseek_keys(ot_arena *arena, const ot_megatron_flags *f, const bool *layers,
                              ot_node *map) {
  int64_t dense = 0;
  while (dense < layers_of(f) && !layers[dense]) dense++;
  const int64_t groups = f->router_groups > 0 ? f->router_groups : 1;
  ot_node_put(arena, map, "first_k_dense_replace", ot_node_integer(arena, dense));
  ot_node_put(arena, map, "n_shared_experts",
              ot_node_integer(arena, f->shared_ffn / expert_width(f)));
  ot_node_put(arena, map, "n_group", ot_node_integer(arena, groups));
  ot_node_put(arena, map, "topk_group",
              ot_node_integer(arena, groups > 1 ? f->router_group_topk : 1));
  ot_node_put(arena, map, "routed_scaling_factor", ot_node_real(arena, f->router_scale));
}

static void add_expert_keys(ot_arena *arena, const ot_megatron_flags *f, const bool *layers,
                            ot_node *map) {
  if (f->experts == 0) return;
  const bool named = f->qk_norm && !f->latent;
  ot_node_put(arena, map,
              f->latent ? "n_routed_experts"
              : named   ? "num_experts"
                        : "num_local_experts",
              ot_node_integer(arena, f->experts));
  ot_node_put(arena, map, "num_experts_per_tok", ot_node_integer(arena, f->experts_per_token));
  if (f->latent) add_deepseek_keys(arena, f, layers, map);
  if (!named && !f->latent) return;
  ot_node_put(arena, map, "norm_topk_prob", ot_node_bool(arena, true));
  ot_node_put(arena, map, "moe_intermediate_size", ot_node_integer(arena, expert_width(f)));
}

// Layers of multi-token prediction have experts as the last layer does.
static ot_status read_expert_layers(const ot_import *import, const ot_megatron_flags *f,
                                    bool *layers) {
  if (f->experts == 0) return OT_OK;
  OT_TRY(ot_megatron_expert_layers(import, f, layers));
  for (int64_t i = f->layers; i < layers_of(f); i++) layers[i] = layers[f->layers - 1];
  return OT_OK;
}

static ot_status check_shape(const ot_import *import, const ot_megatron_flags *f) {
  OT_CHECK(f->experts == 0 || is_rotary(f), OT_USAGE,
           "position-embedding-type: with num-experts only rope is supported (%s)", import->path);
  OT_CHECK(f->experts == 0 || (f->swiglu && f->no_bias), OT_USAGE,
           "num-experts: experts without swiglu, or with biases, are not priced (%s)",
           import->path);
  OT_CHECK(!f->latent || (f->experts > 0 && is_rotary(f)), OT_USAGE,
           "multi-latent-attention: only models with experts and rope are priced (%s)",
           import->path);
  OT_CHECK(layers_of(f) <= OT_MAX_LAYERS, OT_USAGE, "num-layers: with mtp-num-layers more than %d",
           OT_MAX_LAYERS);
  OT_CHECK(f->channels > 0 || f->latent || f->hidden % f->heads == 0, OT_USAGE,
           "num-attention-heads: %lld does not divide hidden-size %lld, and kv-channels is not "
           "given (%s)",
           (long long)f->heads, (long long)f->hidden, import->path);
  return OT_OK;
}

static void add_notes(ot_import *import, const ot_megatron_flags *f) {
  if (!import->out->model_keys) {
    ot_import_note(import,
                   "no Hugging Face family matches this model: it is priced, but there "
                   "is no config.json for it%s",
                   f->hidden_dropout > 0 && is_rotary(f)
                       ? " (none has hidden-dropout, 0.1 by default; with 0 one may match)"
                       : "");
  }
  if (f->squared_relu) ot_import_note(import, "squared-relu is priced as relu");
  if (f->prediction_layers == 0) return;
  ot_import_note(import, "mtp-num-layers %d: priced as more layers, without their heads",
                 f->prediction_layers);
}

ot_status ot_megatron_model(ot_import *import, const ot_megatron_flags *f) {
  ot_imported *const out = import->out;
  int64_t vocabulary;
  bool *const layers = ot_arena_array(import->arena, 2 * OT_MAX_LAYERS, sizeof *layers);
  OT_TRY(check_shape(import, f));
  OT_TRY(find_vocabulary(import, f, &vocabulary));
  OT_TRY(read_expert_layers(import, f, layers));
  ot_node *const keys = model_keys(import->arena, f, vocabulary);
  add_family_keys(import->arena, f, keys);
  add_expert_keys(import->arena, f, layers, keys);
  ot_node_set_source(keys, import->path);
  OT_TRY(ot_model_read(keys, import->arena, &out->model));
  const uint64_t hash = ot_model_hash(&out->model);
  set_differences(f, &out->model);
  for (int64_t i = 0; f->experts > 0 && i < layers_of(f); i++) out->model.moe.layer[i] = layers[i];
  if (ot_model_check(&out->model) != OT_OK) {
    const char *const why = ot_arena_format(import->arena, "%s", ot_fail_message());
    return ot_fail(OT_USAGE, "%s (%s)", why, import->path);
  }
  if (ot_model_hash(&out->model) == hash) out->model_keys = keys;
  add_notes(import, f);
  out->has_model = true;
  return OT_OK;
}
