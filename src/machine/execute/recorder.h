// SPDX-License-Identifier: Apache-2.0
// Fills a timeline from the clock, or on a GPU from events. Each lane has its own
// list, written only by the thread that runs the lane; at the end of a run the lists are merged by
// span start.
#pragma once

#include "device/device.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_recorder_lane {
  int64_t count, capacity;
  ot_span *spans;       // [capacity], sorted by start
  ot_stream **streams;  // [capacity] of each span, with events
  ot_event **events;    // [2 * capacity] start and end of each span
} ot_recorder_lane;

typedef struct ot_recorder {
  bool on;
  double start_s;  // clock at the start of the run
  ot_recorder_lane lane[OT_LANES];
  ot_stream *stream;  // of the compute lane; null: spans are from the clock
  ot_event *start;    // on it
} ot_recorder;

// Allocates lists for the longest order of `schedule` in `arena`.
void ot_recorder_create(const ot_schedule *schedule, ot_arena *arena, ot_recorder *recorder,
                        ot_timeline *timeline);

// From now on spans are from events; `stream` is that of the compute lane.
ot_status ot_recorder_use_events(ot_recorder *recorder, ot_device *device, ot_stream *stream,
                                 ot_arena *arena);
void ot_recorder_destroy(ot_recorder *recorder);

// Starts a run now; keeps spans if `on`.
void ot_recorder_begin(ot_recorder *recorder, bool on);

// Opens a span of `lane` now, or where `stream` has got to; returns its number for
// ot_recorder_close, which ends it.
int64_t ot_recorder_open(ot_recorder *recorder, ot_stream *stream, ot_lane lane, int entry,
                         int task);
void ot_recorder_close(ot_recorder *recorder, ot_lane lane, int64_t span);

// The run is over, its streams are synchronized and no thread records any more: spans of all lanes,
// sorted by start.
ot_status ot_recorder_finish(ot_recorder *recorder, ot_timeline *timeline);
