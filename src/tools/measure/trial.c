// SPDX-License-Identifier: Apache-2.0
// Random tokens suffice, because speed does not depend on their values. Otherwise micro-batches are
// like those of the trainer.
#include "measure/trial.h"

#include <stdlib.h>

#include "base/backend_rules.h"
#include "base/rng.h"
#include "describe/moe.h"
#include "host/clock.h"
#include "runtime/training_request.h"
#include "train/trainer.h"

static ot_status load_field(ot_runtime *runtime, int micro_batch, ot_batch_field field,
                            int64_t vocab) {
  const ot_graph *const graph = ot_runtime_graph(runtime, OT_MODE_TRAIN);
  const ot_tensor_type type = ot_graph_batch_type(graph, field);
  const int64_t n = ot_type_elements(&type);
  const bool ids = field == OT_BATCH_TOKENS || field == OT_BATCH_TARGETS;
  if (n == 0) return OT_OK;
  void *const values = calloc((size_t)n, (size_t)ot_dtype_bytes(type.dtype));
  OT_CHECK(values, OT_ENVIRONMENT, "out of memory");
  for (int64_t i = 0; i < n && type.dtype == OT_I32; i++) {
    const uint64_t at = (uint64_t)(micro_batch * n + i);
    const int32_t position = (int32_t)(i % graph->request.sequence_length);
    if (ids) ((int32_t *)values)[i] = (int32_t)ot_rng_below(7, field, at, (uint64_t)vocab);
    if (field == OT_BATCH_POSITIONS) ((int32_t *)values)[i] = position;
  }
  ot_runtime_load_batch(runtime, OT_MODE_TRAIN, micro_batch, field, values);
  free(values);
  return OT_OK;
}

static ot_status load(ot_runtime *runtime, const ot_run *run, int micro_batches) {
  ot_executor *const executor = ot_runtime_executor(runtime);
  for (int m = 0; m < micro_batches; m++) {
    for (int field = 0; field < OT_BATCH_FIELDS; field++) {
      OT_TRY(load_field(runtime, m, (ot_batch_field)field, run->model.vocab_size));
    }
  }
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, 1e-4);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGET_SQUARES, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES,
                         1 / (double)run->batch.global_batch_size);
  return OT_OK;
}

static ot_status synchronize(ot_comm *comm) {
  const ot_comm_call call = {.kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "meet"};
  return ot_comm_size(comm) > 1 ? ot_comm_run(comm, &call) : OT_OK;
}

// Targets of this rank; the step begins with their all-reduce.
static double targets_of(const ot_run *run, int micro_batches) {
  return (double)(run->batch.micro_batch_size * run->data.sequence_length * micro_batches);
}

static double expert_passes_of(const ot_trial *trial, const ot_runtime *runtime) {
  double sums[OT_EXPERT_SUMS];
  if (trial->run->model.moe.num_experts == 0) return 0;
  ot_runtime_expert_sums(runtime, sums);
  return sums[OT_EXPERT_PASSES] / (double)ot_moe_layers(&trial->run->model);
}

static ot_status step_once(const ot_trial *trial, ot_comm *comm, ot_runtime *runtime, int index) {
  ot_executor *const executor = ot_runtime_executor(runtime);
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  const int micro_batches = schedule->orders[order].micro_batches;
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, targets_of(trial->run, micro_batches));
  OT_TRY(synchronize(comm));
  const double start_s = ot_clock_s();
  OT_TRY(ot_runtime_run(runtime, OT_MODE_TRAIN, micro_batches));
  const ot_trial_step step = {
      .rank = ot_comm_rank(comm),
      .step = index,
      .seconds = ot_clock_s() - start_s,
      .schedule = schedule,
      .timeline = ot_executor_timeline(executor),
      .expert_passes = expert_passes_of(trial, runtime),
      .touched_bytes = trial->poison ? ot_executor_touched_bytes(executor) : 0};
  OT_TRY(synchronize(comm));
  return trial->on_step(trial->context, &step);
}

static ot_status run_steps(const ot_trial *trial, ot_comm *comm, ot_runtime *runtime) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  OT_TRY(ot_runtime_initialize(runtime, 1));
  OT_TRY(load(runtime, trial->run, schedule->orders[order].micro_batches));
  ot_executor_set_trace(ot_runtime_executor(runtime), true);
  for (int i = 0; i < trial->steps; i++) OT_TRY(step_once(trial, comm, runtime, i));
  return OT_OK;
}

static ot_status run_rank(const ot_trial *trial, ot_comm *comm, ot_arena *arena) {
  ot_mesh mesh;
  OT_TRY(ot_mesh_build(&trial->run->parallel, trial->ranks, &mesh));
  const ot_runtime_faults faults = {.poison = trial->poison};
  ot_runtime_request request = {.comm = trial->ranks > 1 ? comm : NULL, .faults = &faults};
  OT_TRY(ot_trainer_check(trial->run));
  OT_TRY(ot_training_request(trial->run, trial->ranks > 1 ? &mesh : NULL, ot_comm_rank(comm), arena,
                             &request.rank));
  request.rank.graph.backend = trial->backend;
  request.rank.graph.threads = trial->threads;
  request.events = ot_backend_rules_of(trial->backend)->queued;
  ot_runtime *runtime = NULL;
  OT_TRY(ot_runtime_create(&request, &runtime));
  const ot_status status = run_steps(trial, comm, runtime);
  ot_runtime_destroy(&runtime);
  return status;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = run_rank(context, comm, &arena);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_trial_run(const ot_trial *trial) {
  ot_trial own = *trial;
  return ot_comm_run_threads(trial->ranks, rank_main, &own);
}
