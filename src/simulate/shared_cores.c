// SPDX-License-Identifier: Apache-2.0
// Finds the stretch by the secant method: the length of a step is nearly linear in it.
#include "simulate/shared_cores.h"

enum { MOST_PLAYS = 6 };

static const double close_enough = 0.002;

// Core seconds of one span; `threads` cores for a kernel. If a collective has more members than
// cores, they take turns; its price includes that.
static double busy_s(const ot_span *span, const ot_task *task, int cores) {
  const double seconds = span->end_s - span->start_s;
  switch (task->kind) {
    case OT_TASK_COMPUTE:
      return seconds * task->attributes.threads;
    case OT_TASK_COLLECTIVE: {
      const int members = task->attributes.group_size;
      return members > cores ? seconds * cores / members : seconds;
    }
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
    case OT_TASK_REPEAT:
      return 0;
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

// Core seconds of one rank.
static double work_s(const ot_timeline *timeline, const ot_schedule *schedule, int cores) {
  const ot_order *const order = &schedule->orders[timeline->order];
  double sum_s = 0;
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = &schedule->segments[order->entries[span->entry].segment];
    sum_s += busy_s(span, &segment->tasks[span->task], cores);
  }
  return sum_s;
}

// Lower bound of the time in which the cores can do the work of all ranks.
static double least_s(const ot_pipeline_replay *replay, const ot_timeline *timelines, int cores) {
  double sum_s = 0;
  for (int i = 0; i < replay->num_stages; i++) {
    const double ranks = (double)replay->schedules[i]->ranks / replay->num_stages;
    sum_s += ranks * work_s(&timelines[i], replay->schedules[i], cores);
  }
  return sum_s / cores;
}

static double longest_s(const ot_pipeline_replay *replay, const ot_timeline *timelines) {
  double longest = 0;
  for (int i = 0; i < replay->num_stages; i++) {
    if (timelines[i].total_s > longest) longest = timelines[i].total_s;
  }
  return longest;
}

ot_status ot_schedules_simulate_shared(const ot_pipeline_replay *replay,
                                       const ot_simulation *simulation, ot_arena *arena,
                                       ot_timeline *timelines, double *stretch) {
  const int cores = simulation->cluster->measured.cores;
  *stretch = simulation->stretch;
  if (cores == 0) return ot_schedules_simulate(replay, simulation, arena, timelines);
  ot_simulation now = *simulation;
  now.stretch = *stretch = 1;
  OT_TRY(ot_schedules_simulate(replay, &now, arena, timelines));
  const double wanted_s = least_s(replay, timelines, cores);
  double before = 1, before_s = longest_s(replay, timelines);
  now.stretch = wanted_s / before_s;
  for (int i = 1; i < MOST_PLAYS && now.stretch > 1 + close_enough; i++) {
    *stretch = now.stretch;
    OT_TRY(ot_schedules_simulate(replay, &now, arena, timelines));
    const double step_s = longest_s(replay, timelines);
    const double slope = (step_s - before_s) / (now.stretch - before);
    if (step_s > wanted_s * (1 - close_enough) || slope <= 0) break;
    before = now.stretch;
    before_s = step_s;
    now.stretch += (wanted_s - step_s) / slope;
  }
  return OT_OK;
}
