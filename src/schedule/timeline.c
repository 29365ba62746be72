// SPDX-License-Identifier: Apache-2.0
// One reading of a timeline. Exposed time is an interval union against the compute lane, never a
// sum of durations. Spans of a lane come in order of their start, which the walk relies on.
#include "schedule/timeline.h"

#include "schedule/schedule.h"

static ot_lane lane_of(const ot_timeline *timeline, const ot_schedule *schedule, int64_t span) {
  const ot_order *const order = &schedule->orders[timeline->order];
  return order->entries[timeline->spans[span].entry].lane;
}

// Next span at or after `from` that is on the compute lane (or is not); num_spans when none is
// left.
static int64_t next_span(const ot_timeline *timeline, const ot_schedule *schedule, int64_t from,
                         bool compute) {
  int64_t i = from;
  while (i < timeline->num_spans &&
         (lane_of(timeline, schedule, i) == OT_LANE_COMPUTE) != compute) {
    i++;
  }
  return i;
}

static double compute_union(const ot_timeline *timeline, const ot_schedule *schedule) {
  double sum = 0, end = 0;
  for (int64_t i = next_span(timeline, schedule, 0, true); i < timeline->num_spans;
       i = next_span(timeline, schedule, i + 1, true)) {
    const ot_span *const span = &timeline->spans[i];
    const double start = span->start_s > end ? span->start_s : end;
    if (span->end_s > start) sum += span->end_s - start;
    if (span->end_s > end) end = span->end_s;
  }
  return sum;
}

// Part of [start, end) that no compute span covers.
static double uncovered(const ot_timeline *timeline, const ot_schedule *schedule, double start,
                        double end) {
  double sum = 0;
  for (int64_t i = next_span(timeline, schedule, 0, true); i < timeline->num_spans && start < end;
       i = next_span(timeline, schedule, i + 1, true)) {
    const ot_span *const span = &timeline->spans[i];
    if (span->end_s <= start) continue;
    if (span->start_s >= end) break;
    if (span->start_s > start) sum += span->start_s - start;
    start = span->end_s;
  }
  return start < end ? sum + end - start : sum;
}

static double exposed_union(const ot_timeline *timeline, const ot_schedule *schedule) {
  double sum = 0, reached = 0;
  for (int64_t i = next_span(timeline, schedule, 0, false); i < timeline->num_spans;
       i = next_span(timeline, schedule, i + 1, false)) {
    const ot_span *const span = &timeline->spans[i];
    const double start = span->start_s > reached ? span->start_s : reached;
    if (span->end_s > start) sum += uncovered(timeline, schedule, start, span->end_s);
    if (span->end_s > reached) reached = span->end_s;
  }
  return sum;
}

ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline,
                                          const ot_schedule *schedule) {
  ot_timeline_summary summary = {
      .total_s = timeline->total_s,
      .compute_s = compute_union(timeline, schedule),
      .matrix_flops = ot_order_flops(schedule, timeline->order, false),
      .model_flops = ot_order_flops(schedule, timeline->order, true),
      .exposed_s = exposed_union(timeline, schedule),
  };
  summary.idle_s = summary.total_s - summary.compute_s;
  summary.bubble_fraction = summary.total_s > 0 ? summary.idle_s / summary.total_s : 0;
  return summary;
}
