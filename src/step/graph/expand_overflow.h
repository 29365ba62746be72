// SPDX-License-Identifier: Apache-2.0
// Lowers the composites of overflow passes (ops/expert_rounds.h).
#pragma once

#include "graph/program.h"

// Appends the loop for `op`, one of OT_OP_OVERFLOW_PASSES, _DX and _DW.
ot_status ot_expand_overflow_passes(ot_program *program, ot_arena *arena, const ot_op *op);
