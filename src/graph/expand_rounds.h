// SPDX-License-Identifier: Apache-2.0
// Takes apart what stands for the rounds behind the first (ops/expert_rounds.h).
#pragma once

#include "graph/program.h"

// Appends the repeat that `op`, one of OT_OP_MORE_ROUNDS, _DX and _DW, stands for.
ot_status ot_expand_rounds(ot_program *program, ot_arena *arena, const ot_op *op);
