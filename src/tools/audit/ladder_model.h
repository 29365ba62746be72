// SPDX-License-Identifier: Apache-2.0
// Small models with the architecture of a given one, that grow in one dimension. What grows with
// width keeps its proportions (heads, MLP, experts); all else stays: vocabulary, experts, latents.
#pragma once

#include "describe/run.h"

typedef enum ot_growth {
  OT_GROWTH_WIDTH,     // hidden_size, by more heads
  OT_GROWTH_HEAD_DIM,  // hidden_size, by wider heads
  OT_GROWTH_LAYERS,
  OT_GROWTHS,
} ot_growth;

// "width", "head_dim", "layers".
extern const char *const ot_growth_names[OT_GROWTHS];

enum { OT_LADDER_VOCABULARY = 256 };  // at most

// `factor` times the smallest of them, without dropout, for sequences of `tokens` tokens.
ot_model ot_ladder_model(const ot_model *of, ot_growth growth, int factor, int64_t tokens);

// The size that grows: hidden_size or the number of layers.
int64_t ot_ladder_size(const ot_model *model, ot_growth growth);
