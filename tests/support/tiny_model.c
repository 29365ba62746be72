// SPDX-License-Identifier: Apache-2.0
// Awkward sizes on purpose: odd heads, a vocabulary size without useful divisors.
#include "support/tiny_model.h"

#include "base/math.h"

static ot_model base(void) {
  return (ot_model){
      .vocab_size = 61,
      .hidden_size = 24,
      .intermediate_size = 40,
      .num_heads = 3,
      .num_kv_heads = 3,
      .head_dim = 8,
      .max_positions = 64,
      .norm_epsilon = 1e-5,
      .embedding_scale = 1,
      .attention_scale = 1 / ot_sqrt(8),
      .initializer_range = 0.05,
      .dtype = OT_F32,
      .bos_id = -1,
      .pad_id = -1,
  };
}

ot_model tiny_gpt2(void) {
  ot_model model = base();
  model.family = OT_FAMILY_GPT2;
  model.model_type = "gpt2";
  model.architecture = "GPT2LMHeadModel";
  model.num_layers = 2;
  model.activation = OT_ACTIVATION_GELU_TANH;
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  model.tie_word_embeddings = true;
  model.norm = OT_NORM_LAYERNORM;
  model.learned_positions = true;
  return model;
}

ot_model tiny_llama(void) {
  ot_model model = base();
  model.family = OT_FAMILY_LLAMA;
  model.model_type = "llama";
  model.architecture = "LlamaForCausalLM";
  model.num_layers = 3;
  model.num_kv_heads = 1;
  model.activation = OT_ACTIVATION_SILU;
  model.gated_mlp = true;
  model.norm = OT_NORM_RMSNORM;
  model.rotary_dim = 8;
  model.rope = (ot_rope){.type = OT_ROPE_DEFAULT, .theta = 10000, .factor = 1};
  model.rope_local = model.rope;
  return model;
}

ot_model tiny_gemma(void) {
  ot_model model = tiny_llama();
  model.family = OT_FAMILY_GEMMA3;
  model.norm_placement = OT_NORM_SANDWICH;
  model.norm_offset = 1;
  model.qk_norm = OT_QK_NORM_HEAD;
  model.embedding_scale = 5;
  model.tie_word_embeddings = true;
  model.rope_local.theta = 100;
  for (int i = 0; i + 1 < model.num_layers; i++) model.window[i] = 5;
  return model;
}

ot_model tiny_experts(const ot_model *base, bool tied) {
  ot_model model = *base;
  model.family = OT_FAMILY_QWEN3_MOE;
  model.model_type = "qwen3_moe";
  model.architecture = "Qwen3MoeForCausalLM";
  model.tie_word_embeddings = tied;
  model.moe = (ot_moe){.num_experts = 8,
                       .experts_per_token = 3,
                       .expert_size = 24,
                       .shared_size = tied ? 0 : 16,
                       .score = OT_MOE_SIGMOID,
                       .renormalise = true,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .capacity_factor = 1,
                       .balance = tied ? OT_MOE_BALANCE_NONE : OT_MOE_BALANCE_BIAS,
                       .z_coefficient = 0.01,
                       .bias_rate = 0.01};
  for (int i = 0; i < (int)model.num_layers; i++) model.moe.layer[i] = tied || i != 1;
  return model;
}

ot_run tiny_run(const ot_model *model) {
  static ot_recompute none[] = {OT_RECOMPUTE_NONE};
  static bool always[] = {true};
  return (ot_run){
      .model = *model,
      .parallel = {.recompute = none, .num_recompute = 1, .reshard = always, .num_reshard = 1},
      .optimizer = {.name = OT_OPTIMIZER_ADAMW,
                    .lr = 1e-3,
                    .betas = {0.9, 0.95},
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .clip = 1,
                    .momentum = 0.95},
  };
}
