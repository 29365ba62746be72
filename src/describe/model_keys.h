// SPDX-License-Identifier: Apache-2.0
// Models from and to the keys of a HF config.json, as transformers 4 and 5 spell and default them.
// A key that would change the mathematics and is not supported is an error, as is one that nobody
// knows; a list of inert keys passes, and of a file also what transformers never reads.
#pragma once

#include "base/schema.h"
#include "describe/model.h"

// One set of rotary parameters as written.
typedef struct ot_rope_keys {
  int type;      // ot_rope_type
  int old_type;  // the same under its old name
  double theta, factor, low_frequency_factor, high_frequency_factor;
  double beta_fast, beta_slow, mscale, mscale_all, attention_factor;
  bool truncate;
  int64_t original_positions;
} ot_rope_keys;

// rope_scaling or rope_parameters: one set for all layers, or one for each type of layer (gemma3).
typedef struct ot_rope_group {
  ot_rope_keys all, full, sliding;
} ot_rope_group;

// quantization_config, as far as fp8 in blocks needs it; "" and none where it does not say.
typedef struct ot_quantization_keys {
  const char *method, *format;
  int64_t *block;  // [num_block]
  int64_t num_block;
} ot_quantization_keys;

// The values of the keys after defaults, before they are turned into an ot_model. Which key means
// what in which family is in the table of model_keys.c.
typedef struct ot_model_keys {
  int family;  // ot_family, key model_type
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int64_t max_positions, original_positions;
  int activation;  // ot_activation
  double norm_epsilon, initializer_range;
  bool tie_word_embeddings, attention_bias, qkv_bias, mlp_bias, use_sliding_window, scale_attention;
  double rope_theta, rope_local_theta;
  ot_rope_group rope_scaling, rope_parameters;
  int64_t sliding_window, sliding_window_pattern, max_window_layers;
  int *layer_types;  // [num_layer_types] 0 = full, 1 = sliding
  int64_t num_layer_types;
  int64_t *rope_layers;  // [num_rope_layers] no_rope_layers: 1 rotates, 0 does not
  int64_t num_rope_layers, no_rope_interval;
  double query_scalar, score_soft_cap, logit_soft_cap;
  double attention_dropout, embedding_dropout, residual_dropout;
  int64_t bos_id, pad_id;
  int64_t *eos_id;
  int64_t num_eos;
  int dtype;  // ot_dtype
  int64_t num_experts, experts_per_token, expert_size, shared_experts, shared_size;
  int64_t first_dense, sparse_step;
  int64_t *dense_layers;  // [num_dense_layers] layers without experts
  int64_t num_dense_layers;
  int64_t num_groups, groups_per_token;
  bool renormalise;
  double glu_alpha, glu_limit;
  double gate_scale, aux_coefficient, z_coefficient, capacity_factor, bias_rate;
  int routing, balance, aux_scale;  // ot_moe_routing, ot_moe_balance, ot_moe_aux_scale
  int64_t kv_rank, q_rank, nope_dim, rope_dim, v_dim;
  bool interleaved;
  int64_t prediction_layers;
  int residuals;                // 0 = none, 1 = block
  int64_t residual_block_size;  // 0: not given
  ot_quantization_keys quantization;
} ot_model_keys;

// The table, over ot_model_keys; its variants are families.
extern const ot_schema ot_model_schema;

// Reads a map of HF keys. `tree` gains a model_type when only architectures tells it.
ot_status ot_model_read(ot_node *tree, ot_arena *arena, ot_model *out);

// Checks what must hold before the table can be used: a known model_type, given or implied by
// architectures (then added to `tree`). `path` of the map for messages: "" or "model".
ot_status ot_model_prepare(ot_node *tree, ot_arena *arena, const char *path);

// Turns keys, as ot_model_schema read them from `tree`, into a model, and checks it.
ot_status ot_model_from_keys(const ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                             ot_model *out);

// Takes out of `tree`, the map of HF keys of a file, those that transformers does not read in a
// model of this family. Returns their names, "a, b", or null when there are none. Pure.
const char *ot_model_drop_unread(ot_node *tree, ot_arena *arena);

// Takes the key at `path` ("logits_scaling", "rope_scaling.short_factor") out of a map of HF keys
// on the user's word, which came from `source`; one that is not there stays so. OT_USAGE for a key
// that changes the mathematics.
ot_status ot_model_ignore_key(ot_node *tree, const char *path, const char *source, ot_arena *arena);

// The model as a map of HF keys that reads back as the same model.
ot_node *ot_model_write(const ot_model *model, ot_arena *arena);

// The same as a config.json that transformers 4 and 5 load: with architectures, HF's names of data
// types, and rotary parameters in both spellings.
ot_node *ot_model_write_config(const ot_model *model, ot_arena *arena);
