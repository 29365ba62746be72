// SPDX-License-Identifier: Apache-2.0
// What every program has to be before it is scheduled.
#pragma once

#include "graph/program.h"

// Every value is written once before it is read, required operands are present, effects go to
// step-level values, bodies of repeats keep to themselves (body.h), placements follow from one
// another (place.h). Names the op that fails. `scratch` holds what is noted of each value.
ot_status ot_program_check(const ot_program *program, ot_arena *scratch);
