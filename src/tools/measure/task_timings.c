// SPDX-License-Identifier: Apache-2.0
// Rows are found by their op and terms.
#include "measure/task_timings.h"

#include <string.h>

#include "schedule/bodies.h"
#include "schedule/joined.h"

static ot_timings *find(ot_task_timings *t, ot_op_kind op, const double terms[OT_KERNEL_TERMS]) {
  for (int64_t i = 0; i < t->count; i++) {
    const ot_task_timing *const row = &t->rows[i];
    if (row->op == op && memcmp(row->terms, terms, sizeof row->terms) == 0) return row->runs;
  }
  t->rows = ot_arena_grow(t->arena, t->rows, t->count, &t->capacity, sizeof *t->rows);
  ot_task_timing *const added = &t->rows[t->count++];
  *added = (ot_task_timing){.op = op, .runs = ot_arena_array(t->arena, 1, sizeof *added->runs)};
  memcpy(added->terms, terms, sizeof added->terms);
  return added->runs;
}

static const ot_segment *segment_of(const ot_timeline *timeline, const ot_schedule *schedule,
                                    const ot_span *span) {
  const ot_order *const order = &schedule->orders[timeline->order];
  return &schedule->segments[order->entries[span->entry].segment];
}

// The times of launches with the work of the one that begins at `task`.
static ot_timings *find_launch(ot_task_timings *t, const ot_segment *segment, int task) {
  double sums[OT_KERNEL_TERMS] = {0};
  for (int i = 0; i < ot_segment_launch(segment, task); i++) {
    double terms[OT_KERNEL_TERMS];
    ot_kernel_terms(&segment->tasks[task + i], terms);
    for (int k = 0; k < OT_KERNEL_TERMS; k++) sums[k] += terms[k];
  }
  return find(t, segment->tasks[task].op, sums);
}

static bool follows(const ot_span *span, const ot_span *before) {
  return span->lane == OT_LANE_COMPUTE && before->lane == OT_LANE_COMPUTE &&
         span->entry == before->entry && span->task == before->task + 1;
}

void ot_task_timings_add(ot_task_timings *t, const ot_timeline *timeline,
                         const ot_schedule *schedule, double less_s) {
  const ot_span *const spans = timeline->spans;
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_segment *const segment = segment_of(timeline, schedule, &spans[i]);
    if (segment->tasks[spans[i].task].kind != OT_TASK_COMPUTE) continue;
    ot_timings_add(find_launch(t, segment, spans[i].task),
                   spans[i].end_s - spans[i].start_s - less_s);
    if (i > 0 && follows(&spans[i], &spans[i - 1])) {
      ot_timings_add(&t->gaps, spans[i].start_s - spans[i - 1].end_s);
    }
  }
}

static void join(ot_timings *to, const ot_timings *from) {
  for (int64_t i = 0; i < from->count && i < OT_TIMINGS_MOST; i++) {
    if (to->count + i < OT_TIMINGS_MOST) to->seconds[to->count + i] = from->seconds[i];
  }
  to->count += from->count;
  to->total_s += from->total_s;
}

void ot_task_timings_join(ot_task_timings *t, const ot_task_timings *from) {
  for (int64_t i = 0; i < from->count; i++) {
    join(find(t, from->rows[i].op, from->rows[i].terms), from->rows[i].runs);
  }
  join(&t->gaps, &from->gaps);
}

void ot_task_timings_add_simulated(ot_task_timings *t, const ot_timeline *timeline,
                                   const ot_schedule *schedule) {
  double launch_s = 0;
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = segment_of(timeline, schedule, span);
    const ot_task *const task = &segment->tasks[span->task];
    if (task->kind != OT_TASK_COMPUTE || ot_segment_repeat_of(segment, span->task) >= 0) continue;
    launch_s += span->end_s - span->start_s;
    const int next = span->task + 1;
    if (next < segment->num_tasks && segment->tasks[next].joins) continue;
    int head = span->task;
    while (segment->tasks[head].joins) head--;
    ot_timings_add(find_launch(t, segment, head), launch_s);
    launch_s = 0;
  }
}
