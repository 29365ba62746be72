// SPDX-License-Identifier: Apache-2.0
// Sets of tensors and factors in words: "model.layers.*.input_layernorm.weight (24 tensors)",
// "1/(dp x micro_batches)". Pure.
#pragma once

#include "judge/evidence.h"

// The members in few words: all tensors, their kinds, or the first names; with the layers if these
// are not all layers of the model that have such tensors. `members` [num_tensors], not empty.
const char *ot_words_of_tensors(const ot_evidence *evidence, const bool *members, ot_arena *arena);

// A number of the step that a faulty factor may be made of: the size of an axis of the mesh, the
// number of micro-batches.
typedef struct ot_step_size {
  const char *name;  // "tp"
  double size;       // > 1; others are left out
} ot_step_size;

// `factor` as a product of at most two of `sizes` [count] or their inverses, within `tolerance`
// (relative), the simplest first: "tp", "1/dp", "tp x cp", "cp/dp", "1/(dp x micro_batches)"; "0".
// Null: none.
const char *ot_words_of_factor(const ot_step_size *sizes, int count, double factor,
                               double tolerance, ot_arena *arena);
