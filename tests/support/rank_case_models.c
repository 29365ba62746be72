// SPDX-License-Identifier: Apache-2.0
// Sizes: hidden 32 (16 would leave heads of 2), heads of 4 dimensions.
#include "support/rank_case_models.h"

#include "base/math.h"
#include "base/rng.h"

static ot_model base(int layers, bool wide) {
  return (ot_model){
      .vocab_size = 61,
      .hidden_size = 24,
      .intermediate_size = 48,
      .num_layers = layers,
      .num_heads = wide ? 12 : 8,
      .num_kv_heads = wide ? 6 : 2,
      .head_dim = 4,
      .max_positions = 64,
      .norm_epsilon = 1e-5,
      .embedding_scale = 1,
      .attention_scale = 1 / ot_sqrt(4),
      .initializer_range = 0.08,
      .dtype = OT_F32,
      .bos_id = -1,
      .pad_id = -1,
  };
}

static ot_model llama(int layers, bool wide) {
  ot_model model = base(layers, wide);
  model.family = OT_FAMILY_LLAMA;
  model.model_type = "llama";
  model.architecture = "LlamaForCausalLM";
  model.activation = OT_ACTIVATION_SILU;
  model.gated_mlp = true;
  model.norm = OT_NORM_RMSNORM;
  model.rotary_dim = 4;
  model.rope = (ot_rope){.type = OT_ROPE_DEFAULT, .theta = 10000, .factor = 1};
  model.rope_local = model.rope;
  return model;
}

static ot_model gpt2(int layers, bool wide) {
  ot_model model = base(layers, wide);
  model.family = OT_FAMILY_GPT2;
  model.model_type = "gpt2";
  model.architecture = "GPT2LMHeadModel";
  model.num_kv_heads = model.num_heads;
  model.activation = OT_ACTIVATION_GELU_TANH;
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  model.tie_word_embeddings = true;
  model.norm = OT_NORM_LAYERNORM;
  model.learned_positions = true;
  return model;
}

// A norm after a branch divides by the branch's magnitude and so amplifies rounding errors;
// branches therefore start large.
static const double large_branches = 0.6;

// Among some hundred tokens with heads of four elements, a few heads are nearly zero. A norm
// divides by their magnitude and amplifies rounding errors (58 times with the usual epsilon). This
// epsilon limits the factor to 10.
static const double head_epsilon = 1e-2;

static ot_model gemma(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  model.family = OT_FAMILY_GEMMA3;
  model.model_type = "gemma3_text";
  model.architecture = "Gemma3ForCausalLM";
  model.num_kv_heads = 1;
  model.activation = OT_ACTIVATION_GELU_TANH;
  model.norm_placement = OT_NORM_SANDWICH;
  model.initializer_range = large_branches;
  model.norm_offset = 1;
  model.norm_epsilon = head_epsilon;
  model.qk_norm = OT_QK_NORM_HEAD;
  model.embedding_scale = 5;
  model.tie_word_embeddings = true;
  model.rope_local.theta = 100;
  for (int i = 0; i < layers; i++) model.window[i] = i % 3 < 2 ? 7 : 0;
  return model;
}

static ot_model gemma2(int layers, bool wide) {
  ot_model model = gemma(layers, wide);
  model.family = OT_FAMILY_GEMMA2;
  model.model_type = "gemma2";
  model.architecture = "Gemma2ForCausalLM";
  model.num_kv_heads = wide ? 6 : 2;
  model.qk_norm = OT_QK_NORM_NONE;
  model.rope_local = model.rope;
  model.score_soft_cap = 4;
  model.logit_soft_cap = 6;
  for (int i = 0; i < layers; i++) model.window[i] = i % 2 == 0 ? 7 : 0;
  return model;
}

static ot_model qwen(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  model.family = OT_FAMILY_QWEN2;
  model.model_type = "qwen2";
  model.architecture = "Qwen2ForCausalLM";
  model.num_kv_heads = wide ? 12 : 8;
  model.qkv_bias = true;
  for (int i = 0; i < layers; i++) model.window[i] = i % 2 == 1 ? 9 : 0;
  return model;
}

static ot_model olmo(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  model.family = OT_FAMILY_OLMO3;
  model.model_type = "olmo3";
  model.architecture = "Olmo3ForCausalLM";
  model.norm_placement = OT_NORM_POST;
  model.initializer_range = large_branches;
  model.qk_norm = OT_QK_NORM_ROW;
  model.rope_local.theta = 100;
  for (int i = 0; i < layers; i++) model.window[i] = i % 3 < 2 ? 7 : 0;
  return model;
}

static ot_model moe(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  model.family = OT_FAMILY_QWEN3_MOE;
  model.model_type = "qwen3_moe";
  model.architecture = "Qwen3MoeForCausalLM";
  model.qk_norm = OT_QK_NORM_HEAD;
  model.norm_epsilon = head_epsilon;
  model.moe = (ot_moe){.num_experts = 8,
                       .experts_per_token = 2,
                       .expert_size = 20,
                       .shared_size = 24,
                       .score = OT_MOE_SIGMOID,
                       .renormalise = true,
                       .scale = 1.5,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .capacity_factor = 1.25,
                       .balance = OT_MOE_BALANCE_BIAS,
                       .aux_coefficient = 0.05,
                       .z_coefficient = 0.01,
                       .bias_rate = 0.01};
  for (int i = 0; i < layers; i++) model.moe.layer[i] = i != 1;
  return model;
}

static ot_model gpt_oss(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  model.family = OT_FAMILY_GPT_OSS;
  model.model_type = "gpt_oss";
  model.architecture = "GptOssForCausalLM";
  model.qkv_bias = model.output_bias = true;
  model.sinks = true;
  model.glu_alpha = 1.702;
  model.glu_limit = 0.4;
  model.rope.type = OT_ROPE_YARN;
  model.rope.factor = 4;
  model.rope.original_positions = 16;
  model.rope.beta_fast = 32;
  model.rope.beta_slow = 1;
  model.rope.exact_ramp = true;
  model.rope_local = model.rope;
  model.moe = (ot_moe){.num_experts = 8,
                       .experts_per_token = 2,
                       .expert_size = 20,
                       .biases = true,
                       .renormalise = true,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .capacity_factor = 1.25,
                       .balance = OT_MOE_BALANCE_AUX_LOSS,
                       .aux_coefficient = 0.05};
  for (int i = 0; i < layers; i++) {
    model.moe.layer[i] = true;
    model.window[i] = i % 2 == 0 ? 7 : 0;
  }
  return model;
}

void rank_model_mix(ot_model *model, int block_size) {
  model->residuals.block_size = block_size;
  model->residuals.sublayers = 2 * model->num_layers;
  for (int i = 0; i < model->num_layers; i++) model->residuals.place[i] = 2 * i;
}

static ot_model residuals(int layers, bool wide) {
  ot_model model = llama(layers, wide);
  rank_model_mix(&model, 3);
  for (int i = 0; i < layers; i++) model.no_rope[i] = i % 3 == 1;
  return model;
}

static ot_model latent(int layers, bool wide) {
  ot_model model = moe(layers, wide);
  model.family = OT_FAMILY_DEEPSEEK_V3;
  model.model_type = "deepseek_v3";
  model.architecture = "DeepseekV3ForCausalLM";
  model.qk_norm = OT_QK_NORM_NONE;
  model.num_kv_heads = model.num_heads;
  model.mla = (ot_mla){.kv_rank = 10,
                       .q_rank = wide ? 0 : 14,
                       .nope_dim = 6,
                       .rope_dim = 4,
                       .v_dim = 5,
                       .interleaved = true};
  model.head_dim = model.mla.nope_dim + model.mla.rope_dim;
  model.attention_scale = 1 / ot_sqrt((double)model.head_dim);
  model.moe.shared_gate = true;
  model.moe.num_groups = 4;
  model.moe.groups_per_token = 2;
  for (int i = 0; i < layers; i++) model.moe.layer[i] = i != 0;
  return model;
}

ot_model rank_model(rank_model_kind kind, int layers, bool wide) {
  switch (kind) {
    case RANK_LLAMA:
      return llama(layers, wide);
    case RANK_GPT2:
      return gpt2(layers, wide);
    case RANK_GEMMA:
      return gemma(layers, wide);
    case RANK_GEMMA2:
      return gemma2(layers, wide);
    case RANK_QWEN:
      return qwen(layers, wide);
    case RANK_OLMO:
      return olmo(layers, wide);
    case RANK_MOE:
      return moe(layers, wide);
    case RANK_GPT_OSS:
      return gpt_oss(layers, wide);
    case RANK_RESIDUALS:
      return residuals(layers, wide);
    case RANK_LATENT:
      return latent(layers, wide);
    case RANK_DROPOUT:
    case RANK_MODELS:
      break;
  }
  ot_model model = gpt2(layers, wide);
  model.embedding_dropout = 0.1;
  model.attention_dropout = 0.2;
  model.residual_dropout = 0.15;
  return model;
}

bool rank_has_experts(rank_model_kind kind) {
  return kind == RANK_MOE || kind == RANK_LATENT || kind == RANK_GPT_OSS;
}

const char *rank_model_name(rank_model_kind kind) {
  static const char *const names[] = {"llama",   "gpt2", "gemma",     "gemma2", "qwen",   "olmo",
                                      "dropout", "moe",  "residuals", "latent", "gpt_oss"};
  return names[kind];
}

// ---- data ----

enum { SEED = 11, TOKENS, LENGTHS, MASKS };

void rank_sequence(int64_t sample, int64_t T, int64_t vocab, rank_token *rows) {
  const uint64_t first = (uint64_t)(sample * T);
  int32_t begin = 0;
  for (int64_t t = 0; t < T; t++) {
    rows[t].token = (int32_t)ot_rng_below(SEED, TOKENS, first + (uint64_t)t, (uint64_t)vocab);
    // A document starts about every ninth token. Some documents have one token, some span the
    // sequence.
    if (t > 0 && sample % 4 > 0 && ot_rng_below(SEED, LENGTHS, first + (uint64_t)t, 9) == 0)
      begin = (int32_t)t;
    rows[t].doc_start = begin;
    rows[t].position = (int32_t)t - begin;
  }
  for (int64_t t = 0; t < T; t++) {
    const bool ends = t + 1 == T || rows[t + 1].doc_start == t + 1;
    const bool masked = ends || ot_rng_below(SEED, MASKS, first + (uint64_t)t, 8) == 0;
    rows[t].target = masked ? -1 : rows[t + 1].token;
  }
}
