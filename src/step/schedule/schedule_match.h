// SPDX-License-Identifier: Apache-2.0
// Checks across ranks: whether the schedules of all ranks of a world match. A collective that a
// member omits, or a message without a receiver, makes a program hang or, worse, a reduction lack a
// rank.
#pragma once

#include "schedule/schedule.h"

// Proves for each order: members of a group agree on its ranks, and call the same collectives in
// the same order with the same sizes and dtypes; all calls of a group are on one lane, so they
// start in list order; every message sent is received, with the same size, dtype and micro-batch,
// in the order of its tag; there is no deadlock, even without message buffering.
//   schedules  [ranks], of ranks 0 .. ranks-1 of one world
// OT_BUG names the first mismatch: rank, entry and task, and their counterpart.
ot_status ot_schedules_match(const ot_schedule *const *schedules, int ranks, ot_arena *arena);
