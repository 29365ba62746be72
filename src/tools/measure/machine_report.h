// SPDX-License-Identifier: Apache-2.0
// A report on the machine and the libraries as a tree, for `orthant doctor` and run records.
#pragma once

#include "base/tree.h"

// Sections orthant, libraries, blas, processor, memory, limits, disk, environment, and `warnings`,
// a list of sentences. Only reads from the system; unknown values are null. Lives in `arena`.
ot_node *ot_machine_report(ot_arena *arena);
