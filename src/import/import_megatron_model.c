// SPDX-License-Identifier: Apache-2.0
// The model described by Megatron-LM's flags: HF keys of the nearest family, then combinations that
// no family has.
#include "base/math.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "import/import_parts.h"
#include "import/megatron_keys.h"

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

static const char *family_name(const ot_megatron_flags *f) {
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
  ot_node_put(
      arena, map, rotary ? "intermediate_size" : "n_inner",
      ot_node_integer(arena, f->experts > 0 && !f->qk_norm ? expert_width(f) : mlp_width(f)));
  ot_node_put(arena, map, rotary ? "num_hidden_layers" : "n_layer",
              ot_node_integer(arena, f->layers));
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

static void add_family_keys(ot_arena *arena, const ot_megatron_flags *f, ot_node *map) {
  if (!is_rotary(f)) {
    ot_node_put(arena, map, "embd_pdrop", ot_node_real(arena, f->hidden_dropout));
    ot_node_put(arena, map, "resid_pdrop", ot_node_real(arena, f->hidden_dropout));
    return;
  }
  const int64_t groups = f->grouped ? (f->groups > 0 ? f->groups : 1) : f->heads;
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
  model->qk_norm = f->qk_norm ? OT_QK_NORM_HEAD : OT_QK_NORM_NONE;
  model->qkv_bias = f->qkv_bias || !f->no_bias;
  model->output_bias = !f->no_bias;
  model->mlp_bias = !f->no_bias;
  model->embedding_dropout = f->hidden_dropout;
  model->residual_dropout = f->hidden_dropout;
  model->num_kv_heads = f->grouped ? (f->groups > 0 ? f->groups : 1) : f->heads;
  model->moe.shared_size = f->shared_ffn;
  if (f->channels > 0) model->head_dim = f->channels;
  model->rotary_dim = model->learned_positions ? 0 : model->head_dim;
  model->attention_scale = 1 / ot_sqrt((double)model->head_dim);
}

static void add_expert_keys(ot_arena *arena, const ot_megatron_flags *f, ot_node *map) {
  if (f->experts == 0) return;
  ot_node_put(arena, map, f->qk_norm ? "num_experts" : "num_local_experts",
              ot_node_integer(arena, f->experts));
  ot_node_put(arena, map, "num_experts_per_tok", ot_node_integer(arena, f->experts_per_token));
  if (!f->qk_norm) return;
  ot_node_put(arena, map, "moe_intermediate_size", ot_node_integer(arena, expert_width(f)));
}

ot_status ot_megatron_model(ot_import *import, const ot_megatron_flags *f) {
  ot_imported *const out = import->out;
  int64_t vocabulary;
  OT_CHECK(f->experts == 0 || is_rotary(f), OT_USAGE,
           "position-embedding-type: with num-experts only rope is supported (%s)", import->path);
  OT_CHECK(f->channels > 0 || f->hidden % f->heads == 0, OT_USAGE,
           "num-attention-heads: %lld does not divide hidden-size %lld, and kv-channels is not "
           "given (%s)",
           (long long)f->heads, (long long)f->hidden, import->path);
  OT_TRY(find_vocabulary(import, f, &vocabulary));
  ot_node *const keys = model_keys(import->arena, f, vocabulary);
  add_family_keys(import->arena, f, keys);
  add_expert_keys(import->arena, f, keys);
  ot_node_set_source(keys, import->path);
  OT_TRY(ot_model_read(keys, import->arena, &out->model));
  const uint64_t hash = ot_model_hash(&out->model);
  set_differences(f, &out->model);
  OT_TRY(ot_model_check(&out->model));
  if (ot_model_hash(&out->model) == hash) {
    out->model_keys = keys;
  } else {
    ot_import_note(import,
                   "no Hugging Face family matches this model: it is priced, but there "
                   "is no config.json for it");
  }
  if (f->squared_relu) ot_import_note(import, "squared-relu is priced as relu");
  return OT_OK;
}
