// SPDX-License-Identifier: Apache-2.0
// Attention Residuals (Kimi Team 2026, arXiv 2603.15031), block form. Sub-layers (attention, MLP)
// are counted through the model and grouped in blocks. The output of a block is the sum of what its
// sub-layers make; each sub-layer reads a mix of the embedding, the outputs of finished blocks and
// the sum so far of its own block. Where all of these stand at a layer follows from its place
// alone.
#pragma once

#include "describe/model.h"

// What is known where a layer begins, and what it finishes.
typedef struct ot_residual_place {
  int64_t finished;     // the embedding and outputs of finished blocks; 0: the model has no such
                        // residuals
  bool begun;           // a sum of the present block comes in
  bool attention_ends;  // attention is the last sub-layer of a block
  bool mlp_ends;        // the MLP is
} ot_residual_place;

// Of `layer`, or, for the number of layers of the model, of the head, which ends nothing.
ot_residual_place ot_residual_place_of(const ot_model *model, int64_t layer);

// True for ordinary residuals and for blocks of the right size; OT_USAGE naming what would fit.
ot_status ot_residuals_check(const ot_model *model);

// Parameters of the mixes: a query for each of the sub-layers of `layers` layers but the first,
// which reads the embedding, and one for the head.
int64_t ot_residual_elements(const ot_model *model, int64_t layers);

// Sub-layers of a block where the user names no number: about eight blocks a model (the paper's
// section on block size: most of the gain of all sub-layers apart).
int64_t ot_residual_default_size(int64_t layers);
