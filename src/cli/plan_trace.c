// SPDX-License-Identifier: Apache-2.0
// The plan as a run, its schedules, and their timelines.
#include "cli/plan_trace.h"

#include "cli/plan_build.h"
#include "train/trace.h"

// Ranks of a stage have one timeline, so the first of each stands for it.
static ot_status write_stages(const ot_prediction *p, ot_arena *arena, ot_trace *trace) {
  ot_timeline *const timelines = ot_arena_array(arena, p->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_play(p, p->steps[0].micro_batches, arena, timelines));
  for (int i = 0; i < p->num_stages; i++) {
    OT_TRY(ot_trace_write_timeline(trace, &timelines[i], p->schedules[i], 0));
  }
  return ot_trace_finish(trace);
}

static ot_status write_trace(const ot_plan_page *page, const char *path, ot_arena *arena) {
  ot_prediction prediction;
  ot_trace *trace = NULL;
  OT_TRY(ot_plan_predict(page->job, &page->plans[0].estimate->candidate, arena, &prediction));
  OT_TRY(ot_trace_create(path, &trace));
  const ot_status status = write_stages(&prediction, arena, trace);
  ot_trace_destroy(&trace);
  return status;
}

ot_status ot_plan_trace_write(const ot_plan_page *page, const char *path) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = write_trace(page, path, &arena);
  ot_heap_release(&heap);
  return status;
}
