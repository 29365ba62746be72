// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing as "F emitted again": which forward values are kept between the forward
// and the backward of a micro-batch, and which forward ops run again just before the backward to
// make the rest. The same kernels on the same operands give the same bits, so the choice changes
// memory and time only.
#pragma once

#include "describe/run.h"
#include "graph/program.h"

// What a policy means for one program:
//   none       keep all that the backward reads
//   selective  re-emit cheap ops (norms, activations) whose inputs are there anyway
//   full       keep the block's input and the outputs of `saved` ops
typedef struct ot_recompute_set {
  bool *kept;     // [program->num_values] lives from F to the backward
  bool *emitted;  // [program->num_ops] forward op that runs again
  int num_emitted;
} ot_recompute_set;

// Decides for a differentiated program.
void ot_recompute_build(const ot_program *program, ot_recompute policy, ot_arena *arena,
                        ot_recompute_set *set);
