// SPDX-License-Identifier: Apache-2.0
// Spans per lane, and their merge.
#include "execute/recorder.h"

#include "host/clock.h"

static void count_tasks(const ot_schedule *schedule, const ot_order *order, int64_t *tasks) {
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const ot_segment *const segment = &schedule->segments[entry->segment];
    for (int k = 0; k < segment->num_tasks; k++) tasks[ot_task_lane(entry, &segment->tasks[k])]++;
  }
}

void ot_recorder_create(const ot_schedule *schedule, ot_arena *arena, ot_recorder *recorder,
                        ot_timeline *timeline) {
  int64_t most = 0;
  *recorder = (ot_recorder){0};
  for (int i = 0; i < schedule->num_orders; i++) {
    int64_t tasks[OT_LANES] = {0};
    int64_t all = 0;
    count_tasks(schedule, &schedule->orders[i], tasks);
    for (int lane = 0; lane < OT_LANES; lane++) {
      all += tasks[lane];
      int64_t *const capacity = &recorder->lane[lane].capacity;
      if (tasks[lane] > *capacity) *capacity = tasks[lane];
    }
    if (all > most) most = all;
  }
  for (int lane = 0; lane < OT_LANES; lane++) {
    ot_recorder_lane *const made = &recorder->lane[lane];
    made->spans = ot_arena_array(arena, made->capacity + 1, sizeof *made->spans);
  }
  *timeline = (ot_timeline){.rank = schedule->rank, .capacity = most};
  timeline->spans = ot_arena_array(arena, most + 1, sizeof *timeline->spans);
}

void ot_recorder_begin(ot_recorder *recorder, bool on) {
  recorder->on = on;
  for (int lane = 0; lane < OT_LANES; lane++) recorder->lane[lane].count = 0;
  recorder->start_s = ot_clock_s();
}

int64_t ot_recorder_open(ot_recorder *recorder, ot_lane lane, int entry, int task) {
  if (!recorder->on) return -1;
  ot_recorder_lane *const list = &recorder->lane[lane];
  OT_ASSERT(list->count < list->capacity);
  const double now_s = ot_clock_s() - recorder->start_s;
  list->spans[list->count] = (ot_span){
      .entry = entry, .task = task, .lane = (int32_t)lane, .start_s = now_s, .end_s = now_s};
  return list->count++;
}

void ot_recorder_close(ot_recorder *recorder, ot_lane lane, int64_t span) {
  if (span < 0) return;
  recorder->lane[lane].spans[span].end_s = ot_clock_s() - recorder->start_s;
}

void ot_recorder_finish(const ot_recorder *recorder, ot_timeline *timeline) {
  int64_t next[OT_LANES] = {0};
  timeline->num_spans = 0;
  for (;;) {
    const ot_span *first = NULL;
    for (int lane = 0; lane < OT_LANES; lane++) {
      const ot_recorder_lane *const list = &recorder->lane[lane];
      if (next[lane] == list->count) continue;
      const ot_span *const span = &list->spans[next[lane]];
      if (!first || span->start_s < first->start_s) first = span;
    }
    if (!first) break;
    next[first->lane]++;
    timeline->spans[timeline->num_spans++] = *first;
  }
  timeline->total_s = ot_clock_s() - recorder->start_s;
}
