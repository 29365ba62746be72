// SPDX-License-Identifier: Apache-2.0
// Fills a timeline from the clock. Each lane has its own list, written by whoever runs the lane
// alone; a run ends with the lists merged by the start of their spans.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_recorder_lane {
  int64_t count, capacity;
  ot_span *spans;  // [capacity] in order of their start
} ot_recorder_lane;

typedef struct ot_recorder {
  bool on;
  double start_s;  // clock at the start of the run
  ot_recorder_lane lane[OT_LANES];
} ot_recorder;

// Room for the longest order of `schedule`, in `arena`.
void ot_recorder_create(const ot_schedule *schedule, ot_arena *arena, ot_recorder *recorder,
                        ot_timeline *timeline);

// A run begins now; spans are kept when `on`.
void ot_recorder_begin(ot_recorder *recorder, bool on);

// Opens a span of `lane` now; returns its number for ot_recorder_close, which ends it now.
int64_t ot_recorder_open(ot_recorder *recorder, ot_lane lane, int entry, int task);
void ot_recorder_close(ot_recorder *recorder, ot_lane lane, int64_t span);

// The run is over and nothing records any more: spans of all lanes by their start.
void ot_recorder_finish(const ot_recorder *recorder, ot_timeline *timeline);
