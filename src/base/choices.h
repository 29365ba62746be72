// SPDX-License-Identifier: Apache-2.0
// Enumerations that several rooms speak (the description of a model, the operators, communication):
// kept here so that none of them includes another.
#pragma once

typedef enum ot_activation {
  OT_ACTIVATION_GELU,       // x * Phi(x), erf form
  OT_ACTIVATION_GELU_TANH,  // HF gelu_new, gelu_pytorch_tanh
  OT_ACTIVATION_SILU,
  OT_ACTIVATION_RELU,
} ot_activation;

// How HF's rope_type turns head_dim and theta into frequencies.
typedef enum ot_rope_type {
  OT_ROPE_DEFAULT,
  OT_ROPE_LINEAR,
  OT_ROPE_LLAMA3,
  OT_ROPE_YARN,
} ot_rope_type;

enum { OT_MAX_EXPERTS = 4096 };  // routed experts of a layer

// How a router's logits become scores.
typedef enum ot_moe_score { OT_MOE_SOFTMAX, OT_MOE_SIGMOID } ot_moe_score;

// Who chooses, and what happens to what does not fit. All but the first look at other tokens: by
// position at earlier ones, by score and expert choice at later ones too.
typedef enum ot_moe_routing {
  OT_MOE_DROPLESS,          // each token goes to its k best experts
  OT_MOE_DROP_BY_POSITION,  // an expert takes the first tokens of a sequence that chose it
  OT_MOE_DROP_BY_SCORE,     // an expert takes those with the highest gates
  OT_MOE_EXPERT_CHOICE,     // each expert takes its best tokens of a sequence
} ot_moe_routing;

// What keeps experts equally busy.
typedef enum ot_moe_balance {
  OT_MOE_BALANCE_NONE,
  OT_MOE_BALANCE_AUX_LOSS,  // a loss on loads (Fedus et al. 2021)
  OT_MOE_BALANCE_BIAS,      // a bias on scores, moved after each step (Wang et al. 2024)
} ot_moe_balance;

// What the coefficient of that loss multiplies, of each sequence by itself.
typedef enum ot_moe_aux_scale {
  OT_MOE_AUX_LAYERS,        // the loss of each layer, of shares of slots: 1 where loads are even
  OT_MOE_AUX_TRANSFORMERS,  // its mean over layers, of slots a token: k where loads are even
} ot_moe_aux_scale;

// Who takes part in a communication: the groups of ranks that a step needs. A rank is in one group
// of each kind; groups that would hold it alone are not made. Two kinds may have the same members:
// what runs beside each other must not share a group, or its calls could pass each other.
typedef enum ot_group_kind {
  OT_GROUP_WORLD,        // all ranks
  OT_GROUP_TENSOR,       // tp: activations inside a block
  OT_GROUP_CONTEXT,      // cp: keys and values inside a block
  OT_GROUP_STAGES,       // pp: activations and their gradients between stages
  OT_GROUP_GATHER,       // dp_shard: weights on their way to ranks that lack them
  OT_GROUP_SHARD,        // dp_shard (dp_replicate when there is none): gradients
  OT_GROUP_CONTEXT_SUM,  // cp: gradients
  OT_GROUP_REPLICATE,    // dp_replicate across shard domains: gradients of pieces
  OT_GROUP_TENSOR_SUM,   // tp: gradients of parameters that all of tp use
  OT_GROUP_KV_SUM,       // ranks of tp that hold copies of one kv head: their gradients
  OT_GROUP_TIED,         // first and last stage: gradients of a tied embedding
  OT_GROUP_TOKENS,       // cp x dp: all who train on different tokens
  // Of blocks in the expert view (graph/graph.h), with ep x etp > 1:
  OT_GROUP_EXPERT,            // ep x etp: rows on their way to experts and back
  OT_GROUP_EXPERT_GATHER,     // edp inside a shard domain: weights
  OT_GROUP_EXPERT_SHARD,      // the same (all of edp when nothing is cut): gradients
  OT_GROUP_EXPERT_REPLICATE,  // edp across shard domains: gradients of pieces
  OT_GROUP_EXPERT_SUM,        // ep x etp: gradients of parameters that all of them use
  OT_GROUP_SEQUENCE,          // tp x cp: counts of those who have parts of the same sequences
  OT_GROUP_KINDS,
} ot_group_kind;

// "world", "tensor", ...
const char *ot_group_name(ot_group_kind kind);

// How attention sees a sequence that is cut over the ranks of cp.
typedef enum ot_context_parallel {
  OT_CONTEXT_RING,     // keys and values travel around; zig-zag pieces r and 2c-1-r
  OT_CONTEXT_ULYSSES,  // all-to-all to whole sequences of some heads; contiguous pieces
} ot_context_parallel;

// Factors of the ranks of a stage (describe/mesh.h), and so placements of a value.
