// SPDX-License-Identifier: Apache-2.0
// Spans per lane, and their merge.
#include "execute/recorder.h"

#include <stdlib.h>

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

// ---- events ----

ot_status ot_recorder_use_events(ot_recorder *recorder, ot_device *device, ot_stream *stream,
                                 ot_arena *arena) {
  recorder->stream = stream;
  OT_TRY(ot_event_create(device, &recorder->start));
  for (int lane = 0; lane < OT_LANES; lane++) {
    ot_recorder_lane *const list = &recorder->lane[lane];
    list->streams = ot_arena_array(arena, list->capacity + 1, sizeof(ot_stream *));
    list->events = ot_arena_array(arena, 2 * list->capacity + 1, sizeof(ot_event *));
    for (int64_t i = 0; i < 2 * list->capacity; i++) {
      OT_TRY(ot_event_create(device, &list->events[i]));
    }
  }
  return OT_OK;
}

void ot_recorder_destroy(ot_recorder *recorder) {
  if (!recorder->stream) return;
  ot_event_destroy(&recorder->start);
  for (int lane = 0; lane < OT_LANES; lane++) {
    const ot_recorder_lane *const list = &recorder->lane[lane];
    for (int64_t i = 0; list->events && i < 2 * list->capacity; i++) {
      ot_event_destroy(&list->events[i]);
    }
  }
  recorder->stream = NULL;
}

// A failure shows when the stream is synchronized.
static void mark(ot_event *event, ot_stream *stream) { (void)ot_event_record(event, stream); }

static ot_status read_events(const ot_recorder *recorder, const ot_recorder_lane *list) {
  for (int64_t i = 0; i < list->count; i++) {
    ot_span *const span = &list->spans[i];
    OT_TRY(ot_event_elapsed(recorder->start, list->events[2 * i], &span->start_s));
    OT_TRY(ot_event_elapsed(recorder->start, list->events[2 * i + 1], &span->end_s));
  }
  return OT_OK;
}

static int by_start(const void *a, const void *b) {
  const double x = ((const ot_span *)a)->start_s, y = ((const ot_span *)b)->start_s;
  return (x > y) - (x < y);
}

// Streams of messages start in any order.
static ot_status read_all_events(ot_recorder *recorder) {
  for (int lane = 0; lane < OT_LANES; lane++) {
    const ot_recorder_lane *const list = &recorder->lane[lane];
    OT_TRY(read_events(recorder, list));
    qsort(list->spans, (size_t)list->count, sizeof *list->spans, by_start);
  }
  return OT_OK;
}

// ---- spans ----

void ot_recorder_begin(ot_recorder *recorder, bool on) {
  recorder->on = on;
  for (int lane = 0; lane < OT_LANES; lane++) recorder->lane[lane].count = 0;
  recorder->start_s = ot_clock_s();
  if (on && recorder->stream) mark(recorder->start, recorder->stream);
}

int64_t ot_recorder_open(ot_recorder *recorder, ot_stream *stream, ot_lane lane, int entry,
                         int task) {
  if (!recorder->on) return -1;
  ot_recorder_lane *const list = &recorder->lane[lane];
  OT_ASSERT(list->count < list->capacity);
  const double now_s = ot_clock_s() - recorder->start_s;
  list->spans[list->count] = (ot_span){
      .entry = entry, .task = task, .lane = (int32_t)lane, .start_s = now_s, .end_s = now_s};
  if (recorder->stream) {
    list->streams[list->count] = stream;
    mark(list->events[2 * list->count], stream);
  }
  return list->count++;
}

void ot_recorder_close(ot_recorder *recorder, ot_lane lane, int64_t span) {
  if (span < 0) return;
  const ot_recorder_lane *const list = &recorder->lane[lane];
  if (recorder->stream) mark(list->events[2 * span + 1], list->streams[span]);
  list->spans[span].end_s = ot_clock_s() - recorder->start_s;
}

ot_status ot_recorder_finish(ot_recorder *recorder, ot_timeline *timeline) {
  if (recorder->stream && recorder->on) OT_TRY(read_all_events(recorder));
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
  return OT_OK;
}
