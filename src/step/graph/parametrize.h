// SPDX-License-Identifier: Apache-2.0
// The rules of a parametrization (describe/parametrization.h) for each part of a parameter: its
// initial values, and factors of the optimizer's learning rate, weight decay and epsilon. All
// factors are 1 with `standard`, and with `mup` at the base sizes. docs/mup.md has the table.
//
// Published rules multiply the outputs of residual branches, attention scores and logits by
// constants. Here a constant c is part of a weight: W' = c W computes the same function, and all
// optimizers take the same steps when the initial value and the learning rate are multiplied by c,
// and weight decay and epsilon divided by it (the symmetry of abc-parametrizations, Yang and Hu
// 2021, arXiv 2011.14522). So models have no multipliers: exports, inference and other software
// need not know the parametrization.
#pragma once

#include "graph/graph_request.h"
#include "graph/hf_names.h"

// Sets `initial` and the factors of each part of `parameter`, which is complete otherwise.
void ot_parametrize(const ot_graph_request *request, ot_role role, ot_parameter *parameter);

// Layers whose number sets the initial values of the projections onto the residual stream.
int64_t ot_parametrization_layers(const ot_graph_request *request);
