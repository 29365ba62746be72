// SPDX-License-Identifier: Apache-2.0
// The conditions that every program meets before it is scheduled.
#pragma once

#include "graph/program.h"

// Checks the program and names the op that fails. Every value is written once before it is read,
// required operands are present, and effects go to step-level values. Values of loop bodies stay
// local (body.h), and placements are consistent (place.h). Notes on values are allocated in
// `scratch`.
ot_status ot_program_check(const ot_program *program, ot_arena *scratch);
