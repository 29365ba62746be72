// SPDX-License-Identifier: Apache-2.0
// When the link between hosts is busy: lanes of a rank that use it at the same time get what the
// others leave. Lanes are replayed one after the other, so a later one fills the gaps of those
// before it. Pure. Private to simulate/.
#pragma once

#include "base/arena.h"

// Busy from start_s to end_s.
typedef struct ot_busy_time {
  double start_s, end_s;
} ot_busy_time;

typedef struct ot_link_calendar {
  ot_arena *arena;
  ot_busy_time *times;  // [count] ascending, disjoint
  int64_t count, capacity;
} ot_link_calendar;

// Uses the link for `length_s` of its free time from `ready_s` on; returns when that ends.
double ot_link_calendar_use(ot_link_calendar *calendar, double ready_s, double length_s);
