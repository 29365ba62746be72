// SPDX-License-Identifier: Apache-2.0
// Appends an op to a program: its outputs get the types that the catalog infers and the placements
// that follow from its operands.
#pragma once

#include "graph/program.h"

// One op to append.
typedef struct ot_op_description {
  ot_op_kind kind;
  const ot_op_attributes *attributes;
  const char *name;  // of output 0
  int num_in;
  int in[OT_MAX_INPUTS];  // [num_in] values, -1 = absent
  const int *out;         // null, or [OT_MAX_OUTPUTS]: outputs that are not inferred (accumulators
                          // and effects) or that exist already, -1 for the others
} ot_op_description;

// Appends the op to phase `part` of `program`. New values are activations in the forward phase,
// gradients otherwise, and are stored in `made`.
ot_status ot_program_emit(ot_program *program, ot_arena *arena, ot_part part,
                          const ot_op_description *description, ot_op *made);
