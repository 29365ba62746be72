// SPDX-License-Identifier: Apache-2.0
// Measures steps of one configuration, and compares them with their prediction.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/cores.h"
#include "measure/measure.h"
#include "measure/trial.h"
#include "predict/predict.h"

static int threads_of(const ot_predict_case *c, const ot_run *run) {
  return run->threads > 0 ? run->threads : ot_host_threads(c->ranks);
}

static void add_terms(const ot_timeline *timeline, const ot_schedule *schedule, double scale,
                      ot_predict_terms *terms) {
  const ot_order *const order = &schedule->orders[timeline->order];
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = &schedule->segments[order->entries[span->entry].segment];
    terms->op_s[segment->tasks[span->task].op] += scale * (span->end_s - span->start_s);
  }
}

// ---- measurement ----

// Steps of one run; each rank writes at its own index.
typedef struct batch {
  ot_predict_record *record;
  ot_predict_step **steps;  // [steps] of the record
} batch;

static ot_status on_step(void *context, const ot_trial_step *step) {
  batch *const b = context;
  ot_predict_record *const r = b->record;
  const int rank = step->rank;
  if (step->touched_bytes > 0) {
    r->touched[rank] = step->touched_bytes;
    return OT_OK;
  }
  r->planned[rank] = step->schedule->memory.peak_bytes;
  if (step->step == 0) return OT_OK;
  ot_predict_step *const out = b->steps[step->step - 1];
  out->rank_s[rank] = step->seconds;
  out->summary[rank] = ot_timeline_summarize(step->timeline, step->schedule);
  add_terms(step->timeline, step->schedule, 1, &out->terms[rank]);
  if (rank == 0) out->expert_passes = step->expert_passes;
  if (rank == 0) ot_task_timings_add(&out->tasks, step->timeline, step->schedule, 0);
  return OT_OK;
}

static ot_status run_batch(int steps, ot_trial *trial, ot_arena *arena, ot_predict_record *r,
                           double *seconds) {
  batch b = {.record = r, .steps = &r->steps[r->count]};
  for (int i = 0; i < steps; i++) {
    b.steps[i] = ot_arena_array(arena, 1, sizeof **b.steps);
    b.steps[i]->tasks.arena = arena;
  }
  trial->steps = steps + 1;
  trial->context = &b;
  OT_TRY(ot_trial_run(trial));
  r->count += steps;
  double pace_s, round_trip_s;
  OT_TRY(ot_measure_round_trip(&round_trip_s));
  OT_TRY(ot_measure_pace(&pace_s));
  for (int i = 0; i < steps; i++) {
    b.steps[i]->pace_s = pace_s;
    b.steps[i]->round_trip_s = round_trip_s;
    *seconds += b.steps[i]->rank_s[0];
  }
  return OT_OK;
}

// By the time of a step that does not count.
static ot_status find_round(const ot_predict_how *how, ot_trial *trial, ot_arena *arena,
                            ot_predict_record *r) {
  double seconds = 0;
  OT_TRY(run_batch(1, trial, arena, r, &seconds));
  r->count = 0;
  const double steps = ceil(how->round_s / seconds);
  r->round = steps < OT_PREDICT_MAX_STEPS / 8 ? (int)steps : OT_PREDICT_MAX_STEPS / 8;
  return OT_OK;
}

ot_status ot_predict_case_measure(const ot_predict_case *c, const ot_predict_how *how,
                                  ot_arena *arena, ot_predict_record *r) {
  ot_config config;
  OT_ASSERT(c->ranks <= OT_PREDICT_MAX_RANKS);
  OT_TRY(ot_predict_case_load(c, arena, &config));
  ot_trial trial = {.run = &config.run,
                    .ranks = c->ranks,
                    .threads = threads_of(c, &config.run),
                    .on_step = on_step};
  if (r->round == 0) OT_TRY(find_round(how, &trial, arena, r));
  const int steps = (how->steps + r->round - 1) / r->round * r->round;
  for (double s = 0; s < how->least_s && r->count + steps <= OT_PREDICT_MAX_STEPS;) {
    OT_TRY(run_batch(steps, &trial, arena, r, &s));
  }
  if (!how->memory) return OT_OK;
  trial.poison = true;
  trial.steps = 1;
  trial.context = &(batch){.record = r};
  return ot_trial_run(&trial);
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The slowest rank determines the time of a step.
static double slowest_s(const ot_predict_step *step, int ranks) {
  double most_s = 0;
  for (int i = 0; i < ranks; i++) most_s = fmax(most_s, step->rank_s[i]);
  return most_s;
}

static void add_step(const ot_predict_step *step, int ranks, double share,
                     ot_predict_outcome *out) {
  ot_task_timings_join(&out->measured_tasks, &step->tasks);
  out->expert_passes += share * step->expert_passes;
  for (int rank = 0; rank < ranks; rank++) {
    for (int op = 0; op < OT_OP_COUNT; op++) {
      out->measured.op_s[op] += share * step->terms[rank].op_s[op];
    }
    out->bubble += share * step->summary[rank].bubble_fraction / ranks;
    out->exposed_s += share * step->summary[rank].exposed_s / ranks;
  }
}

static void sum_up_steps(const ot_predict_record *r, int ranks, ot_predict_outcome *out) {
  double step_s[OT_PREDICT_MAX_STEPS], round_s[OT_PREDICT_MAX_STEPS] = {0};
  int fastest[OT_PREDICT_MAX_STEPS];
  for (int i = 0; i < r->count; i++) {
    step_s[i] = slowest_s(r->steps[i], ranks);
    round_s[i / r->round] += step_s[i] / r->round;
  }
  const int rounds = r->count / r->round, n = ot_timings_fastest(round_s, rounds, fastest);
  out->measured_s = ot_timings_fast_mean(round_s, rounds);
  out->task_steps = n * r->round;
  out->fastest = r->steps[fastest[0] * r->round];
  for (int i = 0; i < out->task_steps; i++) {
    const int step = fastest[i / r->round] * r->round + i % r->round;
    add_step(r->steps[step], ranks, 1.0 / out->task_steps, out);
  }
  qsort(step_s, (size_t)r->count, sizeof *step_s, by_value);
  out->median_s = (step_s[(r->count - 1) / 2] + step_s[r->count / 2]) / 2;
}

// ---- memory ----

// The prediction for a rank is the memory planned for its stage.
static void compare_memory(const ot_prediction *p, const ot_mesh *mesh, const ot_predict_record *r,
                           ot_predict_outcome *out) {
  for (int rank = 0; rank < mesh->ranks; rank++) {
    const int stage = ot_mesh_coordinate(mesh, rank, OT_AXIS_PP);
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

ot_status ot_predict_case_compare(const ot_predict_case *c, const ot_predict_record *record,
                                  const ot_cluster *cluster, ot_arena *arena,
                                  ot_predict_outcome *out) {
  ot_config config;
  ot_mesh mesh;
  ot_prediction prediction;
  OT_TRY(ot_predict_case_load(c, arena, &config));
  OT_TRY(ot_mesh_build(&config.run.parallel, c->ranks, &mesh));
  *out = (ot_predict_outcome){.predicted_tasks.arena = arena, .measured_tasks.arena = arena};
  sum_up_steps(record, c->ranks, out);
  const ot_prediction_request request = {.run = &config.run,
                                         .mesh = &mesh,
                                         .cluster = cluster,
                                         .threads = threads_of(c, &config.run),
                                         .expert_passes = out->expert_passes};
  OT_TRY(ot_prediction_build(&request, arena, &prediction));
  OT_TRY(predict(&prediction, c->ranks, arena, out));
  compare_memory(&prediction, &mesh, record, out);
  return OT_OK;
}
