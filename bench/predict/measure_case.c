// SPDX-License-Identifier: Apache-2.0
// Predicts the step of one configuration, then measures it a few times.
#include <stdlib.h>
#include <string.h>

#include "measure/trial.h"
#include "predict/predict.h"

// Results written by the threads of the ranks, each at its own index.
typedef struct record {
  const ot_prediction *prediction;
  const ot_mesh *mesh;
  double step_s[OT_PREDICT_MAX_RANKS][OT_PREDICT_MAX_STEPS];
  ot_predict_terms terms[OT_PREDICT_MAX_RANKS][OT_PREDICT_MAX_STEPS];
  ot_timeline_summary summary[OT_PREDICT_MAX_RANKS];  // of the last step
  int64_t planned[OT_PREDICT_MAX_RANKS], touched[OT_PREDICT_MAX_RANKS];
  ot_task_timings tasks;  // of rank 0
} record;

static void add_terms(const ot_timeline *timeline, const ot_schedule *schedule, double scale,
                      ot_predict_terms *terms) {
  const ot_order *const order = &schedule->orders[timeline->order];
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = &schedule->segments[order->entries[span->entry].segment];
    terms->op_s[segment->tasks[span->task].op] += scale * (span->end_s - span->start_s);
  }
}

static ot_status on_step(void *context, const ot_trial_step *step) {
  record *const r = context;
  if (step->touched_bytes > 0) {
    r->touched[step->rank] = step->touched_bytes;
    return OT_OK;
  }
  r->planned[step->rank] = step->schedule->memory.peak_bytes;
  if (step->step == 0) return OT_OK;
  r->step_s[step->rank][step->step - 1] = step->seconds;
  add_terms(step->timeline, step->schedule, 1, &r->terms[step->rank][step->step - 1]);
  if (step->rank == 0) ot_task_timings_add(&r->tasks, step->timeline, step->schedule, 0);
  r->summary[step->rank] = ot_timeline_summarize(step->timeline, step->schedule);
  return OT_OK;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The slowest rank determines the time of a step.
static void sum_up_steps(const record *r, int ranks, int steps, ot_predict_outcome *out) {
  double slowest[OT_PREDICT_MAX_STEPS] = {0};
  for (int i = 0; i < steps; i++) {
    for (int rank = 0; rank < ranks; rank++) {
      if (r->step_s[rank][i] > slowest[i]) slowest[i] = r->step_s[rank][i];
    }
  }
  int best = 0;
  for (int i = 0; i < steps; i++) best = slowest[i] < slowest[best] ? i : best;
  for (int rank = 0; rank < ranks; rank++) {
    for (int op = 0; op < OT_OP_COUNT; op++) {
      out->measured.op_s[op] += r->terms[rank][best].op_s[op];
    }
    out->bubble += r->summary[rank].bubble_fraction / ranks;
    out->exposed_s += r->summary[rank].exposed_s / ranks;
  }
  qsort(slowest, (size_t)steps, sizeof *slowest, by_value);
  out->measured_s = (slowest[(steps - 1) / 2] + slowest[steps / 2]) / 2;
  out->fastest_s = slowest[0];
}

// ---- memory ----

// The prediction for a rank is the memory planned for its stage.
static void compare_memory(const record *r, int ranks, ot_predict_outcome *out) {
  const ot_prediction *const p = r->prediction;
  for (int rank = 0; rank < ranks; rank++) {
    const int stage = ot_mesh_coordinate(r->mesh, rank, OT_AXIS_PP);
    const int64_t planned = p->schedules[stage]->memory.peak_bytes;
    const bool seen = r->touched[rank] > 0;
    if (planned > out->planned_bytes) out->planned_bytes = planned;
    if (r->touched[rank] > out->touched_bytes) out->touched_bytes = r->touched[rank];
    out->unequal_ranks += planned != r->planned[rank] || (seen && planned != r->touched[rank]);
  }
}

// ---- prediction ----

static ot_status predict(const ot_prediction *p, int ranks, ot_arena *arena,
                         ot_predict_outcome *out) {
  ot_timeline *const timelines = ot_arena_array(arena, p->num_stages, sizeof *timelines);
  const ot_predicted_step *const step = &p->steps[0];
  OT_TRY(ot_prediction_replay(p, step->micro_batches, arena, timelines));
  for (int i = 0; i < p->num_stages; i++) {
    if (i == 0)
      ot_task_timings_add_simulated(&out->predicted_tasks, &timelines[i], p->schedules[i]);
    const double members = (double)ranks / p->num_stages;
    add_terms(&timelines[i], p->schedules[i], members, &out->predicted);
    const ot_timeline_summary sum = ot_timeline_summarize(&timelines[i], p->schedules[i]);
    out->expected_exposed_s += sum.exposed_s / p->num_stages;
  }
  out->predicted_s = step->expected.step_s;
  out->expected_bubble = step->expected.bubble_fraction;
  return OT_OK;
}

static ot_status run_case(const ot_predict_case *c, const ot_predict_how *how, ot_arena *arena,
                          record *r, ot_predict_outcome *out) {
  ot_config config;
  ot_mesh mesh;
  ot_prediction prediction;
  OT_TRY(ot_predict_case_load(c, arena, &config));
  OT_TRY(ot_mesh_build(&config.run.parallel, c->ranks, &mesh));
  const int cores = ot_runtime_cores(), given = config.run.threads;
  const int shared = cores / c->ranks > 1 ? cores / c->ranks : 1;
  const int threads = given > 0 ? given : shared;
  const ot_prediction_request request = {
      .run = &config.run, .mesh = &mesh, .cluster = how->cluster, .threads = threads};
  OT_TRY(ot_prediction_build(&request, arena, &prediction));
  out->predicted_tasks.arena = r->tasks.arena = arena;
  OT_TRY(predict(&prediction, c->ranks, arena, out));
  r->prediction = &prediction;
  r->mesh = &mesh;
  ot_trial trial = {.run = &config.run,
                    .ranks = c->ranks,
                    .threads = threads,
                    .steps = how->steps + 1,
                    .on_step = on_step,
                    .context = r};
  OT_TRY(ot_trial_run(&trial));
  out->measured_tasks = r->tasks;
  trial.poison = true;
  trial.steps = 1;
  if (how->memory) OT_TRY(ot_trial_run(&trial));
  sum_up_steps(r, c->ranks, how->steps, out);
  compare_memory(r, c->ranks, out);
  return OT_OK;
}

ot_status ot_predict_case_run(const ot_predict_case *c, const ot_predict_how *how, ot_arena *arena,
                              ot_predict_outcome *out) {
  OT_ASSERT(c->ranks <= OT_PREDICT_MAX_RANKS && how->steps <= OT_PREDICT_MAX_STEPS);
  record *const r = calloc(1, sizeof *r);
  OT_CHECK(r, OT_ENVIRONMENT, "out of memory");
  *out = (ot_predict_outcome){0};
  const ot_status status = run_case(c, how, arena, r, out);
  free(r);
  return status;
}
