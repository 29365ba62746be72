// SPDX-License-Identifier: Apache-2.0
// Checks that every gradient is complete before use: the reductions over ranks listed by its bucket
// (buckets.h) are done, each once. Private to schedule/: a part of ot_schedule_check.
#pragma once

#include "schedule/schedule.h"

// Checks one order of training steps: all reductions of a bucket precede its norms and updates.
// OT_BUG names block, group and elements of a missing or repeated one.
ot_status ot_schedule_check_reductions(const ot_schedule *schedule, int order, ot_arena *arena);
