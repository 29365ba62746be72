// SPDX-License-Identifier: Apache-2.0
// The flags of Megatron-LM that affect a step, as megatron/training/arguments.py (core 0.14) spells
// and defaults them, and the inert ones.
#pragma once

#include "base/schema.h"

// 0 = not given, unless the table has a default.
typedef struct ot_megatron_flags {
  int tp, pp, cp, ep, etp;
  int layers_per_chunk, vpp;
  int64_t layers, hidden, heads, groups, ffn, channels, positions, sequence;
  int64_t experts, experts_per_token, expert_ffn, shared_ffn;
  int64_t micro_batch, global_batch;
  int64_t vocabulary, padded_vocabulary, vocabulary_multiple;
  bool grouped, swiglu, squared_relu, tanh_gelu, untied, no_bias, qkv_bias, qk_norm;
  bool rotary;        // older spelling of position_type 1
  int position_type;  // 0 learned_absolute, 1 rope
  int normalization;  // 0 LayerNorm, 1 RMSNorm
  double rotary_base, epsilon, hidden_dropout, attention_dropout, initial_std;
  bool bf16, fp16, gradients_bf16, distributed_optimizer, sequence_parallel;
  bool megatron_fsdp, torch_fsdp, recompute_activations, flash;
  int sharding;   // 0 no_shard, 1 optim, 2 optim_grads, 3 optim_grads_params
  int fp8;        // -1 = not given
  int recompute;  // -1 = not given, 0 full, 1 selective
  int method;     // -1 = not given, 0 uniform, 1 block
  int64_t recompute_layers;
  int implementation;              // 0 transformer_engine, 1 local
  const char *tokenizer, *merges;  // "" = not given
} ot_megatron_flags;

extern const ot_schema ot_megatron_schema;
