// SPDX-License-Identifier: Apache-2.0
// A decoder-only language model as plain values, read by the graph builders and the planner.
// Families differ only in these values; builders use the family name only to choose tensor names.
// Filled from the keys of a HF config.json by model_keys.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"
#include "base/dtype.h"
#include "base/status.h"

enum { OT_MAX_LAYERS = 512, OT_MAX_EOS = 8 };

// HF model_type.
typedef enum ot_family {
  OT_FAMILY_GPT2,
  OT_FAMILY_LLAMA,
  OT_FAMILY_QWEN2,
  OT_FAMILY_QWEN3,
  OT_FAMILY_OLMO2,
  OT_FAMILY_MISTRAL,  // also model_type ministral: mistral with layer_types
  OT_FAMILY_GEMMA2,
  OT_FAMILY_GEMMA3,  // gemma3_text
  OT_FAMILY_MIXTRAL,
  OT_FAMILY_QWEN3_MOE,
  OT_FAMILY_OLMOE,
  OT_FAMILY_GPT_OSS,
  OT_FAMILY_DEEPSEEK_V3,
  OT_FAMILY_SMOLLM3,
  OT_FAMILY_PHI3,
  OT_FAMILY_QWEN2_MOE,
  OT_FAMILY_OLMO3,
  OT_FAMILY_KIMI_K2,
  OT_FAMILY_GLM4_MOE,
  OT_FAMILY_COUNT,
} ot_family;

typedef enum ot_norm_kind { OT_NORM_LAYERNORM, OT_NORM_RMSNORM } ot_norm_kind;

// Norm placement in a layer. x is the residual stream, f attention or the MLP.
typedef enum ot_norm_placement {
  OT_NORM_PRE,       // x + f(norm(x))
  OT_NORM_POST,      // x + norm(f(x))                  olmo2
  OT_NORM_SANDWICH,  // x + norm2(f(norm1(x)))          gemma2, gemma3
} ot_norm_placement;

// RMSNorm of queries and keys after their projection and before rotation, with the model's epsilon.
typedef enum ot_qk_norm {
  OT_QK_NORM_NONE,
  OT_QK_NORM_HEAD,  // per head, weights [head_dim]                     qwen3, gemma3
  OT_QK_NORM_ROW,   // the whole q row and the whole k row                 olmo2
} ot_qk_norm;

// Rotary embedding of one kind of layer.
typedef struct ot_rope {
  ot_rope_type type;
  double theta;                  // > 0
  double factor;                 // linear, llama3, yarn: >= 1; else 1
  double low_frequency_factor;   // llama3
  double high_frequency_factor;  // llama3, > low_frequency_factor
  int64_t original_positions;    // llama3, yarn
  double beta_fast, beta_slow;   // yarn: rotations within the original positions between which
                                 // frequencies are blended, fast >= slow > 0
  double mscale, mscale_all;     // yarn: 0 = not given
  bool exact_ramp;               // yarn: the ends of the blended range are not rounded to pairs
} ot_rope;

// Mixture of experts: MoE layers and routing.
typedef struct ot_moe {
  int64_t num_experts;        // E routed experts per layer; 0: a dense model
  int64_t experts_per_token;  // k [1, num_experts]
  int64_t expert_size;        // width of the MLP of a routed expert
  int64_t shared_size;        // width of the MLP of all shared experts together; 0 = none
  bool shared_gate;           // their output is multiplied by the sigmoid of a gate projection of
                              // the token
  bool biases;                // of the router, and of every routed expert
  bool layer[OT_MAX_LAYERS];  // MoE layers; the others have a dense MLP. [num_layers]
  ot_moe_score score;         //
  bool renormalise;           // the gates of a token are divided by their sum
  double scale;               // multiplies gates
  int64_t num_groups;         // groups of equal size that experts are divided into [1, num_experts]
  int64_t groups_per_token;   // number of best groups that a token's experts are chosen from
  ot_moe_routing routing;     //
  double capacity_factor;     // of an expert, relative to the even share T*k/E (all but dropless)
  ot_moe_balance balance;     //
  double aux_coefficient;     // of the load-balancing loss, >= 0
  // The factor of the auxiliary loss.
  ot_moe_aux_scale aux_scale;
  double z_coefficient;  // of the mean squared log-sum-exp of router logits, >= 0
  double bias_rate;      // of OT_MOE_BALANCE_BIAS: step of the bias after each update
} ot_moe;

// Multi-head latent attention (DeepSeek-AI 2024): queries and keys have nope_dim unrotated and
// rope_dim rotated elements; keys and values are projected from kv_rank latent dims per token, and
// all heads share the rotated part of the key. head_dim is nope_dim + rope_dim.
typedef struct ot_mla {
  int64_t kv_rank;   // 0: ordinary attention
  int64_t q_rank;    // 0: queries are projected in one step
  int64_t nope_dim;  // per head
  int64_t rope_dim;  // per head, even
  int64_t v_dim;     // width of a value head
  bool interleaved;  // HF's weights store rotated elements as pairs (0, 1), (2, 3), ...
} ot_mla;

// Residuals that sub-layers select from (describe/residuals.h).
typedef struct ot_attention_residuals {
  int64_t block_size;            // sub-layers whose outputs are summed; 0: ordinary residuals
  int64_t sublayers;             // of the whole model, two per layer
  int64_t place[OT_MAX_LAYERS];  // sub-layer index of each layer's attention; [num_layers]
} ot_attention_residuals;

typedef struct ot_model {
  ot_family family;
  const char *model_type;    // HF spelling, static: "llama"
  const char *architecture;  // HF spelling, static: "LlamaForCausalLM"

  int64_t vocab_size;         // rows of the embedding [1, 2^31)
  int64_t hidden_size;        // C
  int64_t intermediate_size;  // F, width of the MLP of dense layers
  int64_t num_layers;         // L [1, OT_MAX_LAYERS]
  int64_t num_heads;          // H query heads
  int64_t num_kv_heads;       // G key/value heads; divides num_heads
  int64_t head_dim;           // D; H*D need not be C
  int64_t max_positions;      // maximum sequence length; rows of a learned table
  ot_moe moe;
  ot_mla mla;
  ot_attention_residuals residuals;

  ot_activation activation;
  bool gated_mlp;               // down(activation(gate(x)) * up(x)), else down(activation(up(x)))
  double glu_alpha, glu_limit;  // of the clamped form (ops/activation.h); limit 0: the ordinary one
  bool qkv_bias;
  bool output_bias;  // of the attention's output projection
  bool mlp_bias;     // every MLP projection
  bool sinks;        // a learned attention sink per query head (gpt_oss)
  bool tie_word_embeddings;

  ot_norm_kind norm;
  ot_norm_placement norm_placement;
  double norm_epsilon;  // of all norms except those of latents (graph/decoder_latent.c)
  double norm_offset;   // added to RMSNorm weights, q and k norms too (gemma: 1); else 0
  ot_qk_norm qk_norm;

  double embedding_scale;  // multiplies embedded tokens (gemma: sqrt(hidden_size)); else 1
  double attention_scale;  // multiplies q.k: 1/sqrt(head_dim), gemma 1/sqrt(query_pre_attn_scalar)
  double score_soft_cap;   // attention scores s become c tanh(s / c) (gemma2); 0 = none
  double logit_soft_cap;   // logits likewise

  bool
      learned_positions;  // a position table [max_positions, C] added to embeddings (gpt2); no rope
  int64_t rotary_dim;     // leading dimensions of a head that rotate, even: head_dim, less in
                          // glm4_moe; 0 without rope
  ot_rope rope;           // of layers with window 0
  ot_rope rope_local;     // of layers with a window; equal to `rope` except for gemma3 and olmo3
  bool no_rope[OT_MAX_LAYERS];    // layers without rotation, regardless of rotary_dim; [num_layers]
  int64_t window[OT_MAX_LAYERS];  // keys visible to a query, itself included; 0 = all; [num_layers]

  double embedding_dropout;  // [0, 1), after embeddings are summed
  double attention_dropout;  // [0, 1), on attention probabilities
  double residual_dropout;   // [0, 1), on each branch before the residual addition

  double initializer_range;   // standard deviation of initial weights, > 0
  ot_dtype dtype;             // dtype of the weights in HF files (a hint for export)
  int64_t prediction_layers;  // MTP layers of HF files, after the last layer; not part of the model
  int64_t scale_block[2];     // rows and columns per scale if weights in HF files are fp8 (e4m3);
                              // 0: they are not
  int64_t bos_id, pad_id;     // -1 = none
  int num_eos;                // [0, OT_MAX_EOS]
  int64_t eos_id[OT_MAX_EOS];
} ot_model;

// True when both rotate every position by the same angles.
bool ot_rope_same(const ot_rope *a, const ot_rope *b);

// HF spellings of a family, static: "llama", "LlamaForCausalLM".
const char *ot_family_name(ot_family family);
const char *ot_family_architecture(ot_family family);

// Checks every value against the ranges above and against the others (num_kv_heads divides
// num_heads, rotary_dim even, ...). OT_USAGE, naming the HF key and valid values.
ot_status ot_model_check(const ot_model *model);

// Trainable elements; a tied head counts once.
int64_t ot_model_parameters(const ot_model *model);

// Active parameters per token: k of the E experts, and everything else.
int64_t ot_model_active_parameters(const ot_model *model);

// Hash of everything that affects the mathematics or the tensors; excludes dtype and token ids.
uint64_t ot_model_hash(const ot_model *model);

// True when two layers have the same shapes and mathematics, so that they share segments.
bool ot_model_same_layer(const ot_model *model, int layer, int other);

// `model` reduced to the layers in `layers` [count].
void ot_model_take_layers(const ot_model *model, const int *layers, int count, ot_model *out);
