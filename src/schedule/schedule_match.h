// SPDX-License-Identifier: Apache-2.0
// What one rank's check cannot see: whether the schedules of all ranks of a world fit each other.
// A collective that one member makes and another does not, or a message that nobody takes, is a
// program that hangs or, worse, one whose sums lack a rank.
#pragma once

#include "schedule/schedule.h"

// Proves, order by order: the members of a group agree on who they are, and call the same
// collectives in the same order with the same sizes and types; the calls of a group come from one
// lane, so that the order of the list is the order in which they start; every message that is sent
// is received, of the same size, type and micro-batch, in the order of its tag; no ranks wait for
// each other in a circle, even when nothing is buffered on its way.
//   schedules  [ranks], of ranks 0 .. ranks-1 of one world
// OT_BUG naming the first rank, entry and task that does not fit, and what it does not fit to.
ot_status ot_schedules_match(const ot_schedule *const *schedules, int ranks, ot_arena *arena);
