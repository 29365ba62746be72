// SPDX-License-Identifier: Apache-2.0
// What the program runs on, as a tree: for `orthant doctor` and whatever else wants to record it.
#pragma once

#include "base/tree.h"

// Sections orthant, libraries, blas, processor, memory, limits, disk, environment, and `warnings`:
// a list of sentences about what will hurt. Asks the system, changes nothing; what cannot be found
// out is null. Lives in `arena`.
ot_node *ot_machine_report(ot_arena *arena);
