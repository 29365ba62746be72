// SPDX-License-Identifier: Apache-2.0
// What placements do not say of a ring: a block of keys that has travelled j hops is that of the
// rank j before, and the result is whole when every rank's block was met once.
#pragma once

#include "graph/program.h"

// Every block of attention reads the keys that its attributes say, each rank's is met once, sums
// are read when they are whole, and gradients of keys end where they began. OT_BUG otherwise.
ot_status ot_place_ring_check(const ot_program *program, ot_arena *scratch);
