// SPDX-License-Identifier: Apache-2.0
// Replays the orders of all ranks together, as their executors would, to detect deadlocks. Private
// to schedule/: a part of ot_schedules_match, after group calls and message ends have been matched.
#pragma once

#include "schedule/schedule.h"

// Replays order `order` of schedules [ranks], with concurrent and with serial lanes. Nothing is
// buffered: a message completes when both ends have started it, a collective when all members have.
// OT_BUG names the blocked ranks and their positions.
ot_status ot_schedules_check_deadlock(const ot_schedule *const *schedules, int ranks, int order,
                                      ot_arena *arena);
