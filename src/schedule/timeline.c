// SPDX-License-Identifier: Apache-2.0
// One reading of a timeline. Exposed time is an interval union against the compute lane, never a
// sum of durations. Spans of a lane come in order of their start, which the walk relies on; between
// lanes nothing is said about their order.
#include "schedule/timeline.h"

#include <stddef.h>

#include "schedule/schedule.h"

// A timeline read lane by lane.
typedef struct reader {
  const ot_timeline *timeline;
  const ot_schedule *schedule;
  int64_t next[OT_LANES];  // span that each lane is at; num_spans when it has no more
} reader;

static ot_lane lane_of(const reader *r, int64_t span) {
  const ot_order *const order = &r->schedule->orders[r->timeline->order];
  return order->entries[r->timeline->spans[span].entry].lane;
}

// Moves `lane` to its first span at or after `from`.
static void move(reader *r, ot_lane lane, int64_t from) {
  int64_t i = from;
  while (i < r->timeline->num_spans && lane_of(r, i) != lane) i++;
  r->next[lane] = i;
}

static reader reader_of(const ot_timeline *timeline, const ot_schedule *schedule) {
  reader r = {.timeline = timeline, .schedule = schedule};
  for (int lane = 0; lane < OT_LANES; lane++) move(&r, (ot_lane)lane, 0);
  return r;
}

// Takes the next span of `lane`, null after the last.
static const ot_span *take(reader *r, ot_lane lane) {
  const int64_t at = r->next[lane];
  if (at >= r->timeline->num_spans) return NULL;
  move(r, lane, at + 1);
  return &r->timeline->spans[at];
}

// The same over all lanes but compute: spans by their start, whatever their order in the timeline.
static const ot_span *take_other(reader *r) {
  const ot_span *const spans = r->timeline->spans;
  ot_lane first = OT_LANE_COMPUTE;
  for (int lane = OT_LANE_COMPUTE + 1; lane < OT_LANES; lane++) {
    const int64_t at = r->next[lane];
    if (at >= r->timeline->num_spans) continue;
    const bool earlier =
        first == OT_LANE_COMPUTE || spans[at].start_s < spans[r->next[first]].start_s;
    if (earlier) first = (ot_lane)lane;
  }
  return first == OT_LANE_COMPUTE ? NULL : take(r, first);
}

static double compute_union(reader r) {
  double sum = 0, reached = 0;
  for (const ot_span *span = take(&r, OT_LANE_COMPUTE); span; span = take(&r, OT_LANE_COMPUTE)) {
    const double start = span->start_s > reached ? span->start_s : reached;
    if (span->end_s > start) sum += span->end_s - start;
    if (span->end_s > reached) reached = span->end_s;
  }
  return sum;
}

// Part of [start, end) that no compute span covers. Compute spans that end before `start` are left
// behind in `r`, so that ranges must be asked for by their start.
static double uncovered(reader *r, double start, double end) {
  const ot_timeline *const timeline = r->timeline;
  double sum = 0;
  while (r->next[OT_LANE_COMPUTE] < timeline->num_spans &&
         timeline->spans[r->next[OT_LANE_COMPUTE]].end_s <= start) {
    take(r, OT_LANE_COMPUTE);
  }
  reader ahead = *r;
  for (const ot_span *span = take(&ahead, OT_LANE_COMPUTE); span && start < end;
       span = take(&ahead, OT_LANE_COMPUTE)) {
    if (span->start_s >= end) break;
    if (span->end_s <= start) continue;
    if (span->start_s > start) sum += span->start_s - start;
    start = span->end_s;
  }
  return start < end ? sum + end - start : sum;
}

static double exposed_union(reader r) {
  double sum = 0, reached = 0;
  for (const ot_span *span = take_other(&r); span; span = take_other(&r)) {
    const double start = span->start_s > reached ? span->start_s : reached;
    if (span->end_s > start) sum += uncovered(&r, start, span->end_s);
    if (span->end_s > reached) reached = span->end_s;
  }
  return sum;
}

ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline,
                                          const ot_schedule *schedule) {
  const reader r = reader_of(timeline, schedule);
  ot_timeline_summary summary = {
      .total_s = timeline->total_s,
      .compute_s = compute_union(r),
      .matrix_flops = ot_order_flops(schedule, timeline->order, false),
      .model_flops = ot_order_flops(schedule, timeline->order, true),
      .exposed_s = exposed_union(r),
  };
  summary.idle_s = summary.total_s - summary.compute_s;
  summary.bubble_fraction = summary.total_s > 0 ? summary.idle_s / summary.total_s : 0;
  return summary;
}
