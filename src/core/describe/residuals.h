// SPDX-License-Identifier: Apache-2.0
// Attention Residuals (Kimi Team 2026, arXiv 2603.15031), block form. Sub-layers (attention, MLP)
// are numbered through the model and grouped in blocks. The output of a block is the sum of its
// sub-layers' outputs; each sub-layer reads a mix of the embedding, the outputs of finished blocks
// and the partial sum of its own block. Everything here follows from a layer's position.
#pragma once

#include "describe/model.h"

// The residual inputs at the start of a layer, and the blocks that end in it.
typedef struct ot_residual_position {
  int64_t finished;     // number of mixed values: the embedding and outputs of finished blocks; 0:
                        // ordinary residuals
  bool begun;           // a partial sum of the current block enters
  bool attention_ends;  // attention is the last sub-layer of a block
  bool mlp_ends;        // the MLP is
} ot_residual_position;

// For `layer`, or, for layer = number of layers, for the head, which ends no block.
ot_residual_position ot_residual_position_of(const ot_model *model, int64_t layer);

// Accepts ordinary residuals and blocks of valid size; OT_USAGE with the valid range otherwise.
ot_status ot_residuals_check(const ot_model *model);

// Parameters of the mixes: one query per sub-layer of `layers` layers, except the first, which
// reads the embedding, and one for the head.
int64_t ot_residual_elements(const ot_model *model, int64_t layers);

// Default sub-layers per block: about eight blocks per model (the paper's section on block size:
// most of the gain of one block per sub-layer).
int64_t ot_residual_default_size(int64_t layers);
