// SPDX-License-Identifier: Apache-2.0
// Enumerations that several folders use (model description, operators, communication), kept here so
// that none of them includes another.
#pragma once

// The kind of device that runs kernels and holds the arena.
typedef enum ot_backend { OT_BACKEND_CPU, OT_BACKEND_CUDA, OT_BACKENDS } ot_backend;

// The optimizer of a run. Its rules: describe/optimizer_rules.h, its op: ops/optimizer.h.
typedef enum ot_optimizer_name {
  OT_OPTIMIZER_ADAMW,
  OT_OPTIMIZER_MUON,  // of matrices; AdamW of the rest
  OT_OPTIMIZERS,
} ot_optimizer_name;

typedef enum ot_activation {
  OT_ACTIVATION_GELU,       // x * Phi(x), erf form
  OT_ACTIVATION_GELU_TANH,  // HF gelu_new, gelu_pytorch_tanh
  OT_ACTIVATION_SILU,
  OT_ACTIVATION_RELU,
} ot_activation;

// How HF's rope_type converts head_dim and theta to frequencies.
typedef enum ot_rope_type {
  OT_ROPE_DEFAULT,
  OT_ROPE_LINEAR,
  OT_ROPE_LLAMA3,
  OT_ROPE_YARN,
} ot_rope_type;

enum { OT_MAX_EXPERTS = 4096 };  // routed experts per layer

// The score function of router logits.
typedef enum ot_moe_score { OT_MOE_SOFTMAX, OT_MOE_SIGMOID } ot_moe_score;

// Who chooses, and how overflow is handled. All but the first depend on other tokens: by position
// on earlier ones, by score and expert choice on later ones too.
typedef enum ot_moe_routing {
  OT_MOE_DROPLESS,          // each token goes to its k best experts
  OT_MOE_DROP_BY_POSITION,  // an expert keeps the first tokens of a sequence that chose it
  OT_MOE_DROP_BY_SCORE,     // an expert keeps those with the highest gates
  OT_MOE_EXPERT_CHOICE,     // each expert takes its best tokens of a sequence
} ot_moe_routing;

// Load balancing of experts.
typedef enum ot_moe_balance {
  OT_MOE_BALANCE_NONE,
  OT_MOE_BALANCE_AUX_LOSS,  // an auxiliary loss on loads (Fedus et al. 2021)
  OT_MOE_BALANCE_BIAS,      // a bias on scores, updated after each step (Wang et al. 2024)
} ot_moe_balance;

// The per-sequence loss that the coefficient multiplies.
typedef enum ot_moe_aux_scale {
  OT_MOE_AUX_LAYERS,        // the loss of each layer, over fractions of slots: 1 when loads are
                            // even
  OT_MOE_AUX_TRANSFORMERS,  // its mean over layers, over slots per token: k when loads are even
} ot_moe_aux_scale;

// The communication groups of a step. A rank is in one group of each kind; groups of one rank are
// not created. Two kinds may have the same members: concurrent collectives must not share a group,
// since their calls could overtake each other.
typedef enum ot_group_kind {
  OT_GROUP_WORLD,        // all ranks
  OT_GROUP_TENSOR,       // tp: activations inside a block
  OT_GROUP_CONTEXT,      // cp: keys and values inside a block
  OT_GROUP_STAGES,       // pp: activations and their gradients between stages
  OT_GROUP_GATHER,       // dp_shard: all-gather of weights
  OT_GROUP_SHARD,        // dp_shard (dp_replicate without it): gradients
  OT_GROUP_CONTEXT_SUM,  // cp: gradients
  OT_GROUP_REPLICATE,    // dp_replicate across shard domains: gradient shards
  OT_GROUP_TENSOR_SUM,   // tp: gradients of parameters replicated over tp
  OT_GROUP_KV_SUM,       // ranks of tp with copies of one kv head: their gradients
  OT_GROUP_TIED,         // first and last stage: gradients of a tied embedding
  OT_GROUP_TOKENS,       // cp x dp: ranks that train on different tokens
  // Groups of blocks in the expert view (graph/graph.h), with ep x etp > 1:
  OT_GROUP_EXPERT,            // ep x etp: token dispatch and combine
  OT_GROUP_EXPERT_GATHER,     // edp inside a shard domain: weights
  OT_GROUP_EXPERT_SHARD,      // the same (all of edp without sharding): gradients
  OT_GROUP_EXPERT_REPLICATE,  // edp across shard domains: gradient shards
  OT_GROUP_EXPERT_SUM,        // ep x etp: gradients of parameters replicated over them
  OT_GROUP_SEQUENCE,          // tp x cp: counts of ranks that share sequences
  OT_GROUP_JOB,               // all ranks of a divided world (comm/comm.h)
  OT_GROUP_KINDS,
} ot_group_kind;

// "world", "tensor", ...
const char *ot_group_name(ot_group_kind kind);

// How attention sees a sequence that is sharded over cp.
typedef enum ot_context_parallel {
  OT_CONTEXT_RING,     // keys and values sent around; zig-zag blocks r and 2c-1-r
  OT_CONTEXT_ULYSSES,  // all-to-all to whole sequences of some heads; contiguous blocks
} ot_context_parallel;
