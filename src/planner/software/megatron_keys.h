// SPDX-License-Identifier: Apache-2.0
// The flags of Megatron-LM that affect a step, as megatron/training/arguments.py (core 0.14) spells
// and defaults them, those of Megatron-DeepSpeed, and the inert ones.
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
  bool megatron_fsdp, torch_fsdp, recompute_activations, recompute_moe, flash;
  int sharding;   // 0 no_shard, 1 optim, 2 optim_grads, 3 optim_grads_params
  int fp8;        // -1 = not given
  int recompute;  // -1 = not given, 0 full, 1 selective
  int method;     // -1 = not given, 0 uniform, 1 block
  int64_t recompute_layers;
  const char *recompute_modules;   // "" = not given
  int implementation;              // 0 transformer_engine, 1 local
  const char *tokenizer, *merges;  // "" = not given

  // latent attention
  bool latent;
  int64_t q_rank, kv_rank, key_dim, rope_dim, value_dim;

  // experts
  const char *expert_layers;  // moe-layer-freq
  int router_score;           // 0 softmax, 1 sigmoid
  double router_scale;
  int64_t router_groups, router_group_topk;
  bool router_bias;
  int dispatcher;         // 0 alltoall, 1 flex
  bool deepep;            // of the flex dispatcher
  int prediction_layers;  // multi-token prediction
  bool overlap_experts;

  // overlap and kernels
  bool overlap_gradients, overlap_weights, overlap_tp, no_async_tp, no_overlap_p2p;
  bool graphs, fused_loss, no_accumulation_fusion, fp8_attention, fp8_gather;
  bool narrow_states, fp8_activation_inputs;
  int moment_1, moment_2;  // 0 fp32, 1 bf16, 2 fp16, 3 fp8
  int graph_kind;          // -1 = not given, 0 none
  int backend;             // of attention: -1 = auto, 0 fused, 1 flash, 2 unfused
  const char *cp_kind;
  int64_t bucket_elements;
  int rounds;  // micro-batches on a chunk before the next; 0: pp

  // stages
  const char *layout;  // "" = not given
  int first_layers, last_layers;
  bool embedding_is_layer, loss_is_layer;
  int replicas;  // num-distributed-optimizer-instances

  // Megatron-DeepSpeed
  bool deepspeed, no_pipeline, checkpoints;
  const char *deepspeed_config;
  int zero_stage;  // -1 = not given
} ot_megatron_flags;

extern const ot_schema ot_megatron_schema;
