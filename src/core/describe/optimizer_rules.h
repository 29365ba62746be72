// SPDX-License-Identifier: Apache-2.0
// Properties of each optimizer, in one table: the state that it keeps of matrices inside blocks,
// and what it requires of layouts. AdamW updates all other parameters.
#pragma once

#include <stddef.h>

#include "describe/run.h"

// Decay of a moment per step: a double of ot_run_optimizer, and its key there.
typedef struct ot_moment_decay {
  const char *key;
  size_t offset;
} ot_moment_decay;

typedef struct ot_optimizer_rules {
  ot_optimizer_name name;
  int moments;                // per element: 1 or 2
  ot_moment_decay decays[2];  // of these moments
  bool whole_matrices;        // its op reads a matrix [O, C] at once: none may be sharded
  bool spectral_updates;      // an update has the spectral norm c sqrt(max(O, C)); false: each
                              // element of it is about 1. Both times the learning rate
} ot_optimizer_rules;

// The rules by which a run updates its matrices inside blocks, or all other parameters. The same
// row for both if one optimizer updates all. `run` may be null: AdamW.
const ot_optimizer_rules *ot_optimizer_rules_of(const ot_run *run, bool matrix);

// The decay of moment `index`; 0 if the optimizer does not keep it.
double ot_optimizer_decay(const ot_run *run, const ot_optimizer_rules *rules, int index);
