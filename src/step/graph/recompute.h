// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: the forward values that are saved between the forward and the backward
// of a micro-batch, and the forward ops that run again just before the backward to recompute the
// rest. The same kernels on the same operands give the same bits, so the policy changes memory and
// time only.
//
// Some gradient ops read all that their forward op reads and can write its output again on the way
// (OT_REF_OUTPUT among the outputs of a VJP step). Where only weight gradients read that output,
// the forward op does not run again: they follow the gradient op that writes it. An output that is
// communicated first is recomputed as usual, so that the communication starts early.
#pragma once

#include "graph/program.h"

typedef struct ot_recompute_policy {
  ot_recompute mode;
  ot_module_set modules;  // of selective recompute; empty: cheap ops
  bool separate;          // with modules: gradient ops write no output again
} ot_recompute_policy;

// The effect of a policy on one program:
//   none       saves everything that the backward reads
//   selective  recomputes cheap ops (norms, activations) whose inputs are available anyway; or, if
//              modules are given, the ops of these modules
//   full       saves the block's input and the outputs of `saved` ops
typedef struct ot_recompute_set {
  const ot_program *program;  // the program itself, or with gradient ops that write outputs again:
                              // the same forward ops, values and number of ops
  bool *kept;                 // [program->num_values] saved from F to the backward
  bool *emitted;              // [program->num_ops] forward op that runs again
  int num_emitted;
} ot_recompute_set;

// Computes the set for a differentiated program.
void ot_recompute_build(const ot_program *program, ot_recompute_policy policy, ot_arena *arena,
                        ot_recompute_set *set);
