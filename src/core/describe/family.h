// SPDX-License-Identifier: Apache-2.0
// A model family as one value, ot_family_row: what transformers' class of that name fixes whatever
// its configuration says, which HF keys a file has and what they default to, and the names of its
// tensors. A file of families/ defines each family; family.c lists them.
#pragma once

#include "base/schema.h"
#include "describe/model.h"

// Which layers have a sliding window if a file has no layer_types.
typedef enum ot_window_rule {
  OT_WINDOW_NONE,
  OT_WINDOW_ALL,         // all, when there is a window
  OT_WINDOW_LAST,        // those from max_window_layers on
  OT_WINDOW_EVEN,        // 0, 2, 4, ...
  OT_WINDOW_EVEN_FIRST,  // the even layers below max_window_layers, when there is a window
  OT_WINDOW_NO_ROPE,     // layers without rotary embedding
  OT_WINDOW_BUT_FOURTH,  // all but every fourth
  OT_WINDOW_PATTERN,     // all but every sliding_window_pattern-th
} ot_window_rule;

// Keys of the table in model_keys.c that some families share.
enum {
  OT_KEYS_ROTARY = 1 << 0,   // of decoders with rotary positions
  OT_KEYS_EXPERTS = 1 << 1,  // of every model with experts
  OT_KEYS_GROUPED = 1 << 2,  // of experts in groups, after dense layers, with shared ones
  OT_KEYS_LATENT = 1 << 3,   // of latent attention
  OT_KEYS_NO_BIAS = 1 << 4,  // attention_bias, which must be false
  OT_KEYS_NAMED = 1 << 5,    // of the families that name them
};

// A default of a family where that of the table is another one (transformers 5.23; 4.x is the same
// unless a comment says otherwise).
typedef struct ot_family_default {
  const char *key;
  const char *text;  // as written in a file
} ot_family_default;

// The role of a parameter in its block.
typedef enum ot_role {
  OT_ROLE_EMBEDDING,
  OT_ROLE_POSITIONS,
  OT_ROLE_ATTENTION_NORM,  // before attention
  OT_ROLE_QKV,
  OT_ROLE_Q_NORM,  // per head
  OT_ROLE_K_NORM,
  OT_ROLE_Q_ROW_NORM,  // over whole rows
  OT_ROLE_K_ROW_NORM,
  OT_ROLE_SINKS,
  OT_ROLE_Q_DOWN,   // latent attention: to q_rank
  OT_ROLE_Q_UP,     // from q_rank, or from the residual stream, to heads
  OT_ROLE_KV_DOWN,  // to kv_rank and the rotary part
  OT_ROLE_KV_UP,    // from kv_rank to keys and values of heads
  OT_ROLE_Q_LATENT_NORM,
  OT_ROLE_KV_LATENT_NORM,
  OT_ROLE_ATTENTION_OUTPUT,
  OT_ROLE_ATTENTION_POST_NORM,  // after attention, before the residual sum
  OT_ROLE_MLP_NORM,
  OT_ROLE_GATE_UP,  // gate | up, or up alone
  OT_ROLE_DOWN,
  OT_ROLE_MLP_POST_NORM,
  OT_ROLE_ROUTER,
  OT_ROLE_EXPERT_GATE_UP,  // gate | up of every routed expert
  OT_ROLE_EXPERT_DOWN,     // of every routed expert
  OT_ROLE_SHARED_GATE_UP,
  OT_ROLE_SHARED_DOWN,
  OT_ROLE_SHARED_GATE,      // gate of the shared experts' output
  OT_ROLE_ATTENTION_QUERY,  // query of the mix of block outputs that attention reads
  OT_ROLE_MLP_QUERY,
  OT_ROLE_FINAL_QUERY,
  OT_ROLE_FINAL_NORM,
  OT_ROLE_HEAD,
  OT_ROLES,
} ot_role;

// The HF tensors of a parameter. graph/hf_names.c adds the layer and ".weight" or ".bias".
typedef struct ot_role_names {
  // The module of each matrix of the parameter: q, k, v; gate, up; null: the same as the first, of
  // which they are adjacent rows. '#' is the number of the expert; "...[#]" is one matrix of a
  // tensor that stacks those of all experts, and its bias is "..._bias[#]".
  const char *part[3];
  bool transposed;   // matrices are stored as [inputs, outputs]
  bool interleaved;  // rows of gate and up alternate
} ot_role_names;

struct ot_model_keys;

typedef struct ot_family_row {
  const char *model_type;
  const char *spellings;     // of model_type, separated by '|'; null: only that one
  const char *architecture;  // HF class
  // The spelling and the class of a model whose layers have different windows; null: the same.
  const char *mixed_type, *mixed_architecture;

  ot_norm_kind norm;
  ot_norm_placement norm_placement;
  ot_qk_norm qk_norm;
  double norm_offset;
  bool gated_mlp;
  bool qkv_biases;         // regardless of attention_bias
  bool all_biases;         // in attention and MLP
  bool learned_positions;  // instead of rotary ones
  bool scaled_embedding;   // by sqrt(hidden_size)
  bool scaled_residuals;   // initial weights onto the residual stream, by the number of layers
  bool latent_attention;
  bool shared_gate;
  bool sinks;
  bool expert_biases;  // of the router, and of every routed expert
  bool renormalise;    // gates of a token are divided by their sum, regardless of norm_topk_prob
  ot_moe_score score;  // sigmoid: experts are chosen by score and a bias, which balances them
  const char *unreadable;  // a method of quantisation whose files can be planned but not read

  bool rope_by_type;     // one set of rotary parameters per layer type
  bool ambiguous_theta;  // rope_theta means all layers in transformers 4, but not in 5
  ot_rope usual_rope;    // of files without rotary keys, but for theta; rope_type default: none
  bool window_switch;    // no layer has a window unless use_sliding_window is set
  ot_window_rule window_rule;
  bool writes_layer_types;  // files have layer_types, regardless of the rule

  uint32_t key_sets;    // OT_KEYS_*
  const char *without;  // keys of these sets that it does not have; lists separate by '|'
  const char *keys;     // keys of the table that it has beyond these sets
  const ot_family_default *defaults;  // ended by zeros
  const ot_key *own;                  // keys that it adds to the table, ended by zeros; null: none
  const char *unread;                 // keys of files that transformers does not read
  const char *layers;                 // module of the layers; null: "model.layers"
  const ot_role_names *names;         // [OT_ROLES] where they differ from llama's; null: none do
  // Refuses rotary parameters that the family has another meaning for; null: accepts all. `model`
  // has its own already. OT_USAGE naming the key.
  ot_status (*check_rope)(const struct ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                          const ot_model *model);
} ot_family_row;

const ot_family_row *ot_family_row_of(ot_family family);

// The spellings of model_type of family `index`, separated by '|'; null after the last.
const char *ot_family_types(int index);

// The variant of ot_model_schema that a family is, and the reverse; 0 is none.
static inline int ot_family_variant(ot_family family) { return 1 + (int)family; }
static inline const ot_family_row *ot_family_of_variant(int variant) {
  return ot_family_row_of((ot_family)(variant - 1));
}

// Whether a variant (not 0) has a key of the table of ot_model_schema.
bool ot_family_has_key(const ot_key *key, int variant);

// Key `index` of those that a variant adds to it, 0: all; null after the last.
const ot_key *ot_family_added_key(int variant, int index);

// The default of a key in a variant where it differs from the key's own, or null.
const char *ot_family_fallback(const ot_key *key, int variant);
