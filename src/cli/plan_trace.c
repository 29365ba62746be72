// SPDX-License-Identifier: Apache-2.0
// The plan as a run, its schedules, and their timelines.
#include "cli/plan_trace.h"

#include "train/prediction.h"
#include "train/trace.h"

// What is written, while it is made.
typedef struct tracing {
  const ot_plan_page *page;
  ot_arena *arena;
  ot_run run;
  ot_mesh mesh;
  ot_prediction prediction;
} tracing;

static ot_status predict(tracing *t) {
  const ot_job *const job = t->page->job;
  ot_run_lists *const lists = ot_arena_array(t->arena, 1, sizeof *lists);
  ot_candidate_run(job, &t->page->plans[0].estimate->candidate, lists, &t->run);
  OT_TRY(ot_mesh_build(&t->run.parallel, job->devices, &t->mesh));
  const int threads = ot_cluster_threads(job->cluster, job->devices, t->run.threads);
  const ot_prediction_request request = {.run = &t->run,
                                         .mesh = &t->mesh,
                                         .cluster = job->cluster,
                                         .threads = threads,
                                         .expert_imbalance = job->expert_imbalance};
  return ot_prediction_build(&request, t->arena, &t->prediction);
}

// Ranks of a stage have one timeline, so the first of each stands for it.
static ot_status write_stages(const tracing *t, ot_trace *trace) {
  const ot_prediction *const p = &t->prediction;
  ot_timeline *const timelines = ot_arena_array(t->arena, p->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_play(p, p->steps[0].micro_batches, t->arena, timelines));
  for (int i = 0; i < p->num_stages; i++) {
    OT_TRY(ot_trace_write_timeline(trace, &timelines[i], p->schedules[i], 0));
  }
  return ot_trace_finish(trace);
}

static ot_status write_trace(const ot_plan_page *page, const char *path, ot_arena *arena) {
  tracing t = {.page = page, .arena = arena};
  ot_trace *trace = NULL;
  OT_TRY(predict(&t));
  OT_TRY(ot_trace_create(path, &trace));
  const ot_status status = write_stages(&t, trace);
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
