// SPDX-License-Identifier: Apache-2.0
// Checks that concurrent tasks never access the same bytes, unless both only read. Private to
// schedule/: a part of ot_schedule_check.
#pragma once

#include "schedule/access.h"

// Checks one order. An entry of another lane is in flight from the compute entry it waits for to
// the first compute entry that waits for it (or for a later one of its lane, which runs in order).
// A collective inside a compute entry is in flight from its task to the first task that waits for
// it.
ot_status ot_schedule_check_races(const ot_schedule *schedule, int order,
                                  const ot_access_list *list, ot_arena *arena);
