// SPDX-License-Identifier: Apache-2.0
#include "simulate/link_calendar.h"

double ot_link_calendar_use(ot_link_calendar *calendar, double ready_s, double length_s) {
  ot_busy_time *const times = calendar->times;
  ot_busy_time used = {ready_s, ready_s};
  double left_s = length_s;
  int64_t first = 0;
  while (first < calendar->count && times[first].end_s < ready_s) first++;
  // Times from `first` to `next` - 1 touch the new one.
  int64_t next = first;
  for (; next < calendar->count; next++) {
    const double free_s = times[next].start_s - used.end_s;
    if (free_s >= left_s) break;
    if (free_s > 0) left_s -= free_s;
    if (times[next].end_s > used.end_s) used.end_s = times[next].end_s;
    if (times[next].start_s < used.start_s) used.start_s = times[next].start_s;
  }
  used.end_s += left_s;
  if (next == first) {
    calendar->times = ot_arena_grow(calendar->arena, times, calendar->count, &calendar->capacity,
                                    sizeof *calendar->times);
    for (int64_t i = calendar->count++; i > first; i--) calendar->times[i] = calendar->times[i - 1];
  } else {
    const int64_t fewer = next - first - 1;
    for (int64_t i = next; i < calendar->count; i++) times[i - fewer] = times[i];
    calendar->count -= fewer;
  }
  calendar->times[first] = used;
  return used.end_s;
}
