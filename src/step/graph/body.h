// SPDX-License-Identifier: Apache-2.0
// Loop bodies (ops/repeat.h) in a program: where they are, and what they may do.
#pragma once

#include "graph/program.h"

// True when op `op` of a loop body adds, through `output`, to a loop-carried value. That is not a
// second write.
bool ot_program_updates(const ot_program *program, int op, int output);

// OT_BUG, naming the op, in these cases: a body is empty, extends beyond the program or into
// another phase of the step, or contains a repeat or a composite (expand.h). A body value is read
// outside the body. An op of the body adds to anything but an accumulator or a loop-carried value
// of its repeat.
ot_status ot_program_check_bodies(const ot_program *program, ot_arena *scratch);
