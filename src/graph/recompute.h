// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing as "F emitted again": which forward values are kept between the forward
// and the backward of a micro-batch, and which forward ops run again just before the backward to
// make the rest. The same kernels on the same operands give the same bits, so the choice changes
// memory and time only.
#pragma once

#include "graph/program.h"

typedef enum ot_recompute_policy {
  OT_RECOMPUTE_NONE,       // keep all that the backward reads
  OT_RECOMPUTE_SELECTIVE,  // re-emit cheap ops (norms, activations) whose inputs are there anyway
  OT_RECOMPUTE_FULL,       // keep the block's input and the outputs of `saved` ops
} ot_recompute_policy;

typedef struct ot_recompute {
  bool *kept;     // [program->num_values] lives from F to the backward
  bool *emitted;  // [program->num_ops] forward op that runs again
  int num_emitted;
} ot_recompute;

// Decides for a differentiated program.
void ot_recompute_build(const ot_program *program, ot_recompute_policy policy, ot_arena *arena,
                        ot_recompute *recompute);

const char *ot_recompute_policy_name(ot_recompute_policy policy);
