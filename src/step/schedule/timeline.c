// SPDX-License-Identifier: Apache-2.0
// Analyses a timeline in one pass: a sweep by start time over everything but compute, with a window
// on compute that follows it. The sweep relies on the spans of a lane being sorted by start and by
// entry; it assumes no order between lanes.
#include "schedule/timeline.h"

#include <assert.h>
#include <stddef.h>

#include "describe/groups.h"
#include "ops/collective.h"
#include "schedule/schedule.h"

// Streams of spans of a timeline.
typedef enum stream {
  STREAM_COMPUTE,  // kernels of the compute lane
  STREAM_BLOCK,    // collectives of the compute lane
  STREAM_TENSOR,
  STREAM_GATHER,
  STREAM_REDUCE,
  STREAM_MESSAGE,
  STREAMS,
} stream;

// Interval in which something other than compute is in flight.
typedef struct interval {
  double start_s, end_s;
  const ot_task *task;
  bool message;  // the compute lane waits for a message
} interval;

typedef struct reader {
  const ot_timeline *timeline;
  const ot_schedule *schedule;
  const ot_order *order;
  int64_t next[STREAMS];  // current span of each stream; num_spans at its end
  // Waits for messages, by entry of the compute lane.
  int64_t span;      // first span of the compute and tensor lanes with entry `entry` or later
  int entry;         // next to examine
  double through_s;  // end of earlier work on these lanes
  int64_t message;   // a span of the pipeline lane near the last one found
  int64_t rest;      // after the last entry: next message that may still be in flight
} reader;

static const ot_span *span_at(const reader *r, int64_t span) { return &r->timeline->spans[span]; }

static const ot_task *task_of(const reader *r, const ot_span *span) {
  const ot_entry *const entry = &r->order->entries[span->entry];
  return &r->schedule->segments[entry->segment].tasks[span->task];
}

static stream stream_of(const reader *r, const ot_span *span) {
  switch ((ot_lane)span->lane) {
    case OT_LANE_COMPUTE:
      return task_of(r, span)->kind == OT_TASK_COLLECTIVE ? STREAM_BLOCK : STREAM_COMPUTE;
    case OT_LANE_TENSOR:
      return STREAM_TENSOR;
    case OT_LANE_GATHER:
      return STREAM_GATHER;
    case OT_LANE_REDUCE:
      return STREAM_REDUCE;
    case OT_LANE_PIPELINE:
      return STREAM_MESSAGE;
    case OT_LANES:
      break;
  }
  OT_UNREACHABLE();
}

// Moves a stream to its first span at or after `from`.
static void move(reader *r, stream s, int64_t from) {
  int64_t i = from;
  while (i < r->timeline->num_spans && stream_of(r, span_at(r, i)) != s) i++;
  r->next[s] = i;
}

static reader reader_of(const ot_timeline *timeline, const ot_schedule *schedule) {
  reader r = {
      .timeline = timeline, .schedule = schedule, .order = &schedule->orders[timeline->order]};
  for (int s = 0; s < STREAMS; s++) move(&r, (stream)s, 0);
  r.message = r.rest = r.next[STREAM_MESSAGE];
  return r;
}

// The current span of a stream, null at its end.
static const ot_span *head(const reader *r, stream s) {
  return r->next[s] < r->timeline->num_spans ? span_at(r, r->next[s]) : NULL;
}

static void skip(reader *r, stream s) { move(r, s, r->next[s] + 1); }

// ---- waits for messages ----

// The first span of message `entry`; num_spans if it has none. Searches from the last position:
// waits are nearly in the order of the messages.
static int64_t find_message(reader *r, int entry) {
  const int64_t count = r->timeline->num_spans;
  int64_t at = r->message;
  for (int64_t i = at < count ? at : count - 1; i >= 0; i--) {
    const ot_span *const span = span_at(r, i);
    if (span->lane != OT_LANE_PIPELINE) continue;
    if (span->entry < entry) break;
    at = i;
  }
  while (at < count && (span_at(r, at)->lane != OT_LANE_PIPELINE || span_at(r, at)->entry < entry))
    at++;
  if (at < count) r->message = at;
  return at < count && span_at(r, at)->entry == entry ? at : count;
}

static double message_end(const reader *r, int64_t first) {
  double end = 0;
  for (int64_t i = first; i < r->timeline->num_spans; i++) {
    const ot_span *const span = span_at(r, i);
    if (span->lane != OT_LANE_PIPELINE) continue;
    if (span->entry != span_at(r, first)->entry) break;
    if (span->end_s > end) end = span->end_s;
  }
  return end;
}

// Skips the spans of the compute and tensor lanes of entries before `entry`.
static void pass_entries(reader *r, int entry) {
  for (; r->span < r->timeline->num_spans; r->span++) {
    const ot_span *const span = span_at(r, r->span);
    if (span->lane != OT_LANE_COMPUTE && span->lane != OT_LANE_TENSOR) continue;
    if (span->entry >= entry) return;
    if (span->end_s > r->through_s) r->through_s = span->end_s;
  }
}

// The wait of compute entry `r->entry` for its message, if it takes time.
static bool wait_of_entry(reader *r, interval *wait) {
  const ot_entry *const entry = &r->order->entries[r->entry];
  pass_entries(r, r->entry);
  const int64_t message = find_message(r, entry->wait[OT_LANE_PIPELINE]);
  if (message == r->timeline->num_spans) return false;
  *wait = (interval){.start_s = r->through_s,
                     .end_s = message_end(r, message),
                     .task = task_of(r, span_at(r, message)),
                     .message = true};
  if (wait->end_s <= r->through_s) return false;
  r->through_s = wait->end_s;
  return true;
}

// The next wait by its start; false if there is none.
static bool next_wait(reader *r, interval *wait) {
  const int64_t count = r->timeline->num_spans;
  for (; r->entry < r->order->num_entries; r->entry++) {
    const ot_entry *const entry = &r->order->entries[r->entry];
    if (entry->lane != OT_LANE_COMPUTE || entry->wait[OT_LANE_PIPELINE] < 0) continue;
    if (!wait_of_entry(r, wait)) continue;
    r->entry++;
    return true;
  }
  pass_entries(r, r->entry);
  for (; r->rest < count; r->rest++) {
    const ot_span *const span = span_at(r, r->rest);
    if (span->lane != OT_LANE_PIPELINE || span->end_s <= r->through_s) continue;
    *wait = (interval){r->through_s, span->end_s, task_of(r, span), true};
    r->rest++;
    return true;
  }
  return false;
}

// ---- unions ----

typedef struct sweep {
  reader r;
  bool waits;  // `wait` is the next one
  interval wait;
  double last_s;  // end of the last forward or backward task
  // End of each union so far.
  double all_s, busy_s, axis_s[OT_TIMELINE_AXES], op_s[OT_TIMELINE_AXES][OT_COMMUNICATIONS];
  ot_timeline_summary sum;
  double busy_sum_s;  // non-message time outside compute, up to last_s
} sweep;

static bool is_forward_or_backward(ot_phase phase) {
  return phase == OT_PHASE_FORWARD || phase == OT_PHASE_RECOMPUTE || phase == OT_PHASE_INPUT ||
         phase == OT_PHASE_WEIGHT || phase == OT_PHASE_BACKWARD;
}

static double last_forward_or_backward(const reader *r) {
  double last = 0;
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const span = span_at(r, i);
    const bool counts = is_forward_or_backward(r->order->entries[span->entry].phase);
    if (counts && span->end_s > last) last = span->end_s;
  }
  return last;
}

// Union of kernels of the compute lane up to `limit`.
static double compute_union(reader r, double limit) {
  double sum = 0, reached = 0;
  for (const ot_span *span; (span = head(&r, STREAM_COMPUTE)); skip(&r, STREAM_COMPUTE)) {
    const double start = span->start_s > reached ? span->start_s : reached;
    const double end = span->end_s < limit ? span->end_s : limit;
    if (end > start) sum += end - start;
    if (end > reached) reached = end;
  }
  return sum;
}

// Part of [start, end) that no kernel covers; ignores kernels that the reader has passed.
static double uncovered(reader r, double start, double end) {
  double sum = 0;
  for (const ot_span *span; start < end && (span = head(&r, STREAM_COMPUTE));
       skip(&r, STREAM_COMPUTE)) {
    if (span->start_s >= end) break;
    if (span->end_s <= start) continue;
    if (span->start_s > start) sum += span->start_s - start;
    start = span->end_s;
  }
  return start < end ? sum + end - start : sum;
}

// Adds [start, end) to a union that reaches up to `reached`.
static void unite(const sweep *s, const interval *i, double limit, double *reached, double *sum) {
  const double start = i->start_s > *reached ? i->start_s : *reached;
  const double end = i->end_s < limit ? i->end_s : limit;
  if (end <= start) return;
  *sum += uncovered(s->r, start, end);
  *reached = end;
}

ot_timeline_axis ot_timeline_axis_of(ot_group_kind group) {
  if (group == OT_GROUP_TOKENS) return OT_TIMELINE_WORLD;
  switch (ot_group_axis(group)) {
    case OT_AXIS_TP:
    case OT_AXIS_ETP:
      return OT_TIMELINE_TP;
    case OT_AXIS_CP:
      return OT_TIMELINE_CP;
    case OT_AXIS_EP:
      return OT_TIMELINE_EP;
    case OT_AXIS_PP:
      return OT_TIMELINE_PP;
    case OT_AXIS_DP_SHARD:
    case OT_AXIS_DP_REPLICATE:
    case OT_AXIS_EDP:
      return OT_TIMELINE_DP;
    case OT_AXIS_COUNT:
      return OT_TIMELINE_WORLD;
  }
  OT_UNREACHABLE();
}

static void add_interval(sweep *s, const interval *i) {
  const double end = s->sum.total_s;
  // Spans before the sweep position are no longer needed.
  for (const ot_span *span; (span = head(&s->r, STREAM_COMPUTE)) && span->end_s <= i->start_s;) {
    skip(&s->r, STREAM_COMPUTE);
  }
  unite(s, i, end, &s->all_s, &s->sum.exposed_s);
  if (!i->message) unite(s, i, s->last_s, &s->busy_s, &s->busy_sum_s);
  if (i->task->kind == OT_TASK_COMPUTE) return;
  const ot_timeline_axis axis = ot_timeline_axis_of(i->task->attributes.group);
  const int op = ot_communication_index(i->task->op);
  unite(s, i, end, &s->axis_s[axis], &s->sum.exposed_axis_s[axis]);
  unite(s, i, end, &s->op_s[axis][op], &s->sum.exposed_op_s[axis][op]);
}

// The next interval by its start; false if there is none.
static bool next_interval(sweep *s, interval *next) {
  stream first = STREAM_COMPUTE;
  for (int i = STREAM_BLOCK; i <= STREAM_REDUCE; i++) {
    const ot_span *const span = head(&s->r, (stream)i);
    const bool earlier =
        span && (first == STREAM_COMPUTE || span->start_s < head(&s->r, first)->start_s);
    if (earlier) first = (stream)i;
  }
  const ot_span *const span = first == STREAM_COMPUTE ? NULL : head(&s->r, first);
  if (s->waits && (!span || s->wait.start_s < span->start_s)) {
    *next = s->wait;
    s->waits = next_wait(&s->r, &s->wait);
    return true;
  }
  if (!span) return false;
  *next = (interval){span->start_s, span->end_s, task_of(&s->r, span), false};
  skip(&s->r, first);
  return true;
}

static ot_timeline_part part_of(ot_phase phase) {
  switch (phase) {
    case OT_PHASE_FORWARD:
      return OT_TIMELINE_FORWARD;
    case OT_PHASE_RECOMPUTE:
      return OT_TIMELINE_RECOMPUTE;
    case OT_PHASE_INPUT:
    case OT_PHASE_WEIGHT:
    case OT_PHASE_BACKWARD:
      return OT_TIMELINE_BACKWARD;
    default:
      return OT_TIMELINE_UPDATE;
  }
}

// Kernels of a lane run one after the other, so sums are unions.
static void sum_parts(const reader *r, double part_s[OT_TIMELINE_PARTS]) {
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const span = span_at(r, i);
    if (stream_of(r, span) != STREAM_COMPUTE) continue;
    part_s[part_of(r->order->entries[span->entry].phase)] += span->end_s - span->start_s;
  }
}

ot_timeline_summary ot_timeline_summarize(const ot_timeline *timeline,
                                          const ot_schedule *schedule) {
  sweep s = {.r = reader_of(timeline, schedule)};
  s.last_s = last_forward_or_backward(&s.r);
  s.sum.total_s = timeline->total_s;
  s.sum.compute_s = compute_union(s.r, timeline->total_s);
  const double before_last_s = compute_union(s.r, s.last_s);
  s.waits = next_wait(&s.r, &s.wait);
  for (interval next; next_interval(&s, &next);) add_interval(&s, &next);
  sum_parts(&s.r, s.sum.part_s);
  s.sum.idle_s = s.sum.total_s - s.sum.compute_s;
  const double bubble_s = s.last_s - before_last_s - s.busy_sum_s;
  s.sum.bubble_s = bubble_s > 0 ? bubble_s : 0;  // rounding
  s.sum.bubble_fraction = s.sum.total_s > 0 ? s.sum.bubble_s / s.sum.total_s : 0;
  s.sum.matrix_flops = ot_order_flops(schedule, timeline->order, false);
  s.sum.model_flops = ot_order_flops(schedule, timeline->order, true);
  return s.sum;
}

const char *ot_timeline_axis_name(ot_timeline_axis axis) {
  static const char *const names[] = {"tp", "cp", "ep", "pp", "dp", "world"};
  static_assert(sizeof names / sizeof names[0] == OT_TIMELINE_AXES, "one name each");
  return names[axis];
}

const char *ot_timeline_part_name(ot_timeline_part part) {
  static const char *const names[OT_TIMELINE_PARTS] = {"forward", "recompute", "backward",
                                                       "update"};
  return names[part];
}
