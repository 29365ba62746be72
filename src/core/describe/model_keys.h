// SPDX-License-Identifier: Apache-2.0
// Models from and to the keys of a HF config.json, as transformers 4 and 5 spell and default them.
// Unsupported keys that would change the mathematics are errors, as are unknown keys; a list of
// inert keys is ignored, and for files also the keys that transformers never reads.
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
  double partial_rotary;
} ot_rope_keys;

// rope_scaling or rope_parameters: one set for all layers, or one per layer type (gemma3).
typedef struct ot_rope_group {
  ot_rope_keys all, full, sliding;
} ot_rope_group;

// quantization_config, as far as block-wise fp8 needs it; "" and none when absent.
typedef struct ot_quantization_keys {
  const char *method, *format;
  int64_t *block;  // [num_block]
  int64_t num_block;
} ot_quantization_keys;

// The values of the keys after defaults. Keys that give a value of the model as it is, or up to a
// default or a property of the family that is added to it, are read into `model`; the others are
// converted. The table in model_keys.c and the files of families/ give the meaning of each key.
typedef struct ot_model_keys {
  ot_model model;
  int64_t original_positions;
  bool use_sliding_window, scale_attention, use_qk_norm;
  double partial_rotary;  // share of a head that rotates; 0: the family has no such key
  double rope_theta, rope_local_theta;
  ot_rope_group rope_scaling, rope_parameters;
  int64_t sliding_window, sliding_window_pattern, max_window_layers;
  int *layer_types;  // [num_layer_types] 0 = full, 1 = sliding
  int64_t num_layer_types;
  int64_t *rope_layers;  // [num_rope_layers] no_rope_layers: 1 rotates, 0 does not
  int64_t num_rope_layers, no_rope_interval;
  double query_scalar;
  int64_t *eos_id;
  int64_t num_eos;
  int64_t shared_experts;
  int64_t first_dense, sparse_step;
  int64_t *dense_layers;  // [num_dense_layers] layers without experts
  int64_t num_dense_layers;
  int balance;                  // ot_moe_balance, -1 = auto
  int residuals;                // 0 = none, 1 = block
  int64_t residual_block_size;  // 0: not given
  ot_quantization_keys quantization;
} ot_model_keys;

// The table, over ot_model_keys; its variants are families (ot_family_variant).
extern const ot_schema ot_model_schema;

// Words of keys, ended by null: activations in the order of ot_activation, and the only allowed
// values of keys that are not supported otherwise.
extern const char *const ot_activations[];
extern const char *const ot_only_false[];
extern const char *const ot_only_true[];
extern const char *const ot_only_null[];
extern const char *const ot_only_zero[];

// Keys that do not affect the mathematics of training, separated by '|'.
extern const char ot_inert_model_keys[];

// The value given for a key of a map, which may be null, or null when it is absent or null.
const ot_node *ot_model_given(const ot_node *map, const char *key);

// Parses a map of HF keys. Adds model_type to `tree` when only architectures implies it.
ot_status ot_model_read(ot_node *tree, ot_arena *arena, ot_model *out);

// Checks the precondition for using the table: a known model_type, given or implied by
// architectures (then added to `tree`). `path` of the map for messages: "" or "model".
ot_status ot_model_prepare(ot_node *tree, ot_arena *arena, const char *path);

// Converts keys, as read from `tree` by ot_model_schema, to a model, and checks it.
ot_status ot_model_from_keys(const ot_model_keys *keys, const ot_node *tree, ot_arena *arena,
                             ot_model *out);

// Removes from `tree`, the map of HF keys of a file, the keys that transformers does not read for
// this family. Returns their names, "a, b", or null when there are none. Pure.
const char *ot_model_drop_unread(ot_node *tree, ot_arena *arena);

// Removes the key at `path` ("logits_scaling", "rope_scaling.short_factor") from a map of HF keys
// at the user's request, given in `source`; an absent key is no error. OT_USAGE for a key that
// changes the mathematics.
ot_status ot_model_ignore_key(ot_node *tree, const char *path, const char *source, ot_arena *arena);

// The model as a map of HF keys that parses to the same model.
ot_node *ot_model_write(const ot_model *model, ot_arena *arena);

// The same as a config.json that transformers 4 and 5 load: with architectures, HF's dtype names,
// and rotary parameters in both spellings.
ot_node *ot_model_write_config(const ot_model *model, ot_arena *arena);
