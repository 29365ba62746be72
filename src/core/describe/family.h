// SPDX-License-Identifier: Apache-2.0
// Properties that each model family fixes independently of its configuration: one entry per family.
// Keys and their defaults are in the tables of model_keys.h.
#pragma once

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

typedef struct ot_family_row {
  const char *architecture;  // HF class
  ot_norm_kind norm;
  ot_norm_placement norm_placement;
  ot_qk_norm qk_norm;
  double norm_offset;
  bool gated_mlp;
  bool qkv_biases;         // regardless of attention_bias
  bool all_biases;         // in attention and MLP
  bool learned_positions;  // instead of rotary ones
  bool scaled_embedding;   // by sqrt(hidden_size)
  bool latent_attention;
  bool shared_gate;
  bool sinks;
  bool expert_biases;  // of the router, and of every routed expert
  bool renormalise;    // gates of a token are divided by their sum, regardless of norm_topk_prob
  bool rope_by_type;   // one set of rotary parameters per layer type
  bool window_switch;  // no layer has a window unless use_sliding_window is set
  ot_window_rule window_rule;
  bool writes_layer_types;  // files have layer_types, regardless of the rule
} ot_family_row;

const ot_family_row *ot_family_row_of(ot_family family);

// The spellings of model_type, in the order of ot_family, ended by null.
extern const char *const ot_family_choices[];
