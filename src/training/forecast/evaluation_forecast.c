// SPDX-License-Identifier: Apache-2.0
// A validation runs the forward pass of one micro-batch after the other; tasks run on engines of
// their own (run_tasks.h).
#include "forecast/evaluation_forecast.h"

#include <math.h>

#include "base/text.h"
#include "schedule/rank_request.h"
#include "simulate/shared_cores.h"

// ---- validation ----

static int64_t times_of(int64_t every, int64_t steps) {
  return every > 0 ? (steps + every - 1) / every : 1;
}

// Micro-batches of all ranks, over all sets.
static int64_t rounds_of(const ot_run *run, const ot_mesh *mesh) {
  const int64_t length = run->data.sequence_length;
  const int64_t rows = (run->data.validation_tokens + length - 1) / length;
  const int64_t round = ot_run_round_sequences(run, mesh);
  return run->data.num_validation * ((rows + round - 1) / round);
}

ot_status ot_evaluation_forecast_validation(const ot_prediction_request *request,
                                            const ot_prediction *prediction, ot_arena *arena,
                                            ot_evaluation_forecast *out) {
  const ot_run *const run = request->run;
  *out = (ot_evaluation_forecast){0};
  if (run->data.num_validation == 0) return OT_OK;
  ot_timeline *const timelines = ot_arena_array(arena, prediction->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_replay_validation(prediction, arena, timelines));
  for (int i = 0; i < prediction->num_stages; i++) {
    out->validation_round_s = fmax(out->validation_round_s, timelines[i].total_s);
  }
  out->validations = times_of(run->data.validation_every, ot_run_total_steps(run));
  out->validation_s = run->data.validation_tokens == 0
                          ? NAN
                          : (double)rounds_of(run, request->mesh) * out->validation_round_s;
  return OT_OK;
}

// ---- tasks ----

// Ranks of a CPU share the memory of their host, accelerators have their own.
static ot_run_tasks_ranks ranks_of(const ot_prediction_request *request,
                                   const ot_prediction *prediction) {
  const ot_cluster *const cluster = &prediction->cluster;
  const ot_predicted_memory *const memory = &prediction->memory;
  const int count = request->mesh ? request->mesh->ranks : 1, host = cluster->host_devices;
  const bool alone = !ot_device_is_host(&cluster->device);
  const int sharing = alone ? 1 : host > 0 && host < count ? host : count;
  return (ot_run_tasks_ranks){.count = count,
                              .sharing = sharing,
                              .threads = request->threads,
                              .training_bytes = memory->arena.peak_bytes,
                              .memory_bytes = sharing * (memory->capacity - memory->context)};
}

static ot_status price_tasks(const ot_prediction_request *request, const ot_prediction *prediction,
                             const ot_run_tasks *tasks, ot_arena *arena,
                             ot_evaluation_forecast *out) {
  const ot_run_tasks_ranks ranks = ranks_of(request, prediction);
  ot_run_tasks_engines engines;
  OT_TRY(ot_run_tasks_place(request->run, tasks, &ranks, arena, &engines));
  const ot_run_tasks_machine machine = {request->cluster, &ranks, &engines};
  return ot_run_tasks_predict(request->run, tasks, &machine, arena, &out->tasks);
}

static ot_status predict_tasks(const ot_prediction_request *request,
                               const ot_prediction *prediction, ot_arena *arena,
                               ot_evaluation_forecast *out) {
  ot_run_tasks tasks;
  out->evaluations = ot_run_tasks_times(request->run);
  if (out->evaluations == 0) return OT_OK;
  out->tasks.seconds = NAN;
  ot_status status = ot_run_tasks_open(request->run, arena, &tasks);
  if (status == OT_OK) status = price_tasks(request, prediction, &tasks, arena, out);
  ot_run_tasks_close(&tasks);
  // The files may be on another machine than the one that predicts.
  if (status == OT_ENVIRONMENT) {
    out->note = ot_arena_format(arena, "evaluations have no price: %s", ot_fail_message());
    return OT_OK;
  }
  return status;
}

ot_status ot_evaluation_forecast_build(const ot_prediction_request *request,
                                       const ot_prediction *prediction, ot_arena *arena,
                                       ot_evaluation_forecast *out) {
  OT_TRY(ot_evaluation_forecast_validation(request, prediction, arena, out));
  return predict_tasks(request, prediction, arena, out);
}

double ot_evaluation_forecast_s(const ot_evaluation_forecast *forecast) {
  double seconds = 0;
  if (forecast->validations > 0) seconds += (double)forecast->validations * forecast->validation_s;
  if (forecast->evaluations > 0) seconds += (double)forecast->evaluations * forecast->tasks.seconds;
  return seconds;
}
