// SPDX-License-Identifier: Apache-2.0
// The type system of placements: for each op kind, which placements its operands may have on an
// axis and which its outputs have then (place_rules.c). Builders use it to type what they write;
// the check derives every type again and compares. Gradients are typed by duality when they are
// made, so the check of a backward program is independent of how it was derived.
#pragma once

#include "graph/program.h"

// The placements of the outputs of `op`, from those of its inputs in `program`.
//   out  [OT_MAX_OUTPUTS][OT_PLACED_AXES]; of outputs that are absent: anything
// OT_BUG, naming op, operand, axis, what it is and what it may be.
ot_status ot_place_outputs(const ot_program *program, const ot_op *op,
                           ot_placement out[OT_MAX_OUTPUTS][OT_PLACED_AXES]);

// Every value has the placement that follows from its op's operands, gradients are dual to their
// values, accumulators to their parameters, and rings (place_ring.h) are whole.
ot_status ot_place_check(const ot_program *program, ot_arena *scratch);
