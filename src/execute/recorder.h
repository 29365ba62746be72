// SPDX-License-Identifier: Apache-2.0
// Fills a timeline from the clock. Each lane has its own list, written only by the thread that runs
// the lane; at the end of a run the lists are merged by span start.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

typedef struct ot_recorder_lane {
  int64_t count, capacity;
  ot_span *spans;  // [capacity], sorted by start
} ot_recorder_lane;

typedef struct ot_recorder {
  bool on;
  double start_s;  // clock at the start of the run
  ot_recorder_lane lane[OT_LANES];
} ot_recorder;

// Allocates lists for the longest order of `schedule` in `arena`.
void ot_recorder_create(const ot_schedule *schedule, ot_arena *arena, ot_recorder *recorder,
                        ot_timeline *timeline);

// Starts a run now; keeps spans if `on`.
void ot_recorder_begin(ot_recorder *recorder, bool on);

// Opens a span of `lane` now; returns its number for ot_recorder_close, which ends it.
int64_t ot_recorder_open(ot_recorder *recorder, ot_lane lane, int entry, int task);
void ot_recorder_close(ot_recorder *recorder, ot_lane lane, int64_t span);

// The run is over and no thread records any more: spans of all lanes, sorted by start.
void ot_recorder_finish(const ot_recorder *recorder, ot_timeline *timeline);
