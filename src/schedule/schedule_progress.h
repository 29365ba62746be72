// SPDX-License-Identifier: Apache-2.0
// Replays the orders of all ranks beside each other, as their executors would, to see that none
// waits for another in a circle. Private to schedule/: a part of ot_schedules_match, after the
// calls of groups and the ends of messages are known to fit.
#pragma once

#include "schedule/schedule.h"

// Replays order `order` of schedules [ranks], with lanes beside each other and one after the other.
// Nothing is buffered: a message lasts until both ends have started it, a collective until all
// members have. OT_BUG naming the ranks that stand still and where.
ot_status ot_schedules_check_progress(const ot_schedule *const *schedules, int ranks, int order,
                                      ot_arena *arena);
