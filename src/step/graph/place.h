// SPDX-License-Identifier: Apache-2.0
// The type system of placements: for each op kind, the placements that its operands may have on an
// axis and the resulting placements of its outputs (place_rules.c). Builders use it to type values;
// the check derives every type again and compares. Gradients are typed by duality when they are
// created, so the check of a backward program is independent of its derivation.
#pragma once

#include "graph/program.h"

// Derives the placements of the outputs of `op` from those of its inputs in `program`.
//   out  [OT_MAX_OUTPUTS][OT_PLACED_AXES]; undefined for absent outputs
// OT_BUG, naming op, operand, axis, actual and allowed placements.
ot_status ot_place_outputs(const ot_program *program, const ot_op *op,
                           ot_placement out[OT_MAX_OUTPUTS][OT_PLACED_AXES]);

// Checks that every value has the placement that follows from its op's operands, and that rings
// (place_ring.h) are complete. Gradients must be dual to their values, accumulators to their
// parameters.
ot_status ot_place_check(const ot_program *program, ot_arena *scratch);
