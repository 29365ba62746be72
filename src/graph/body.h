// SPDX-License-Identifier: Apache-2.0
// Bodies of repeats (ops/repeat.h) in a program: where they are, and what they may do.
#pragma once

#include "graph/program.h"

// True when op `op` of a body adds, through `output`, to what its repeat hands out: that is no
// second write.
bool ot_program_updates(const ot_program *program, int op, int output);

// OT_BUG, naming the op, for a body that is empty, reaches beyond the program or into another part
// of a step, holds a repeat or a composite (expand.h); for reading elsewhere what a body makes; for
// adding, other than to accumulators, to anything but what the repeat of the body hands out.
ot_status ot_program_check_bodies(const ot_program *program, ot_arena *scratch);
