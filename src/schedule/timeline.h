// SPDX-License-Identifier: Apache-2.0
// When each task of a schedule ran, or would run: filled by the executor from a clock and by the
// simulator from prices, read by one piece of code whoever filled it. Times are seconds from the
// start of the order.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct ot_schedule ot_schedule;

// One task's run: of a communication, from its start until it was seen done.
typedef struct ot_span {
  int32_t entry;  // index in the order
  int32_t task;   // index in the entry's segment
  double start_s;
  double end_s;
  int32_t lane;  // ot_lane that it ran on
} ot_span;

typedef struct ot_timeline {
  int order;  // which order of the schedule was played
  int rank;   // world rank
  int64_t num_spans;
  int64_t capacity;  // spans that fit; further ones are counted, not kept
  ot_span *spans;    // [capacity], in order of their start on each lane
  double total_s;    // length of the whole order
} ot_timeline;

// What one reading of a timeline says.
typedef struct ot_timeline_summary {
  double total_s;
  double compute_s;        // union of compute-lane spans
  double idle_s;           // total_s - compute_s
  double bubble_fraction;  // idle_s / total_s
  double matrix_flops;     // of all tasks, recompute included
  double model_flops;      // 3 x forward: what MFU counts, see ot_order_flops
  double exposed_s;        // union of other lanes' spans outside the compute lane's
} ot_timeline_summary;

ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline, const ot_schedule *schedule);
