// SPDX-License-Identifier: Apache-2.0
// Ring checks beyond placements: a block of keys after j hops comes from the rank j before, and the
// result is complete when every rank's block was processed once.
#pragma once

#include "graph/program.h"

// Checks that every block of attention reads the keys that its attributes state, and that each
// rank's block is processed once. Sums may be read only when complete, and gradients of keys must
// end on their source rank. OT_BUG otherwise.
ot_status ot_place_ring_check(const ot_program *program, ot_arena *scratch);
