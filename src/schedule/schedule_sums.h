// SPDX-License-Identifier: Apache-2.0
// Every gradient is whole when it is used: the sums over ranks that its bucket asks for (buckets.h)
// were made, each once. Private to schedule/: a part of ot_schedule_check.
#pragma once

#include "schedule/schedule.h"

// Checks one order of training steps: norms and updates of a block find the sums of its bucket
// made; OT_BUG naming block, group and elements when one is missing or made twice.
ot_status ot_schedule_check_sums(const ot_schedule *schedule, int order, ot_arena *arena);
