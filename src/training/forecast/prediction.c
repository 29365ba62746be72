// SPDX-License-Identifier: Apache-2.0
// One rank per stage represents it (ot_rank_of_stage).
#include "forecast/prediction.h"

#include "base/backend_rules.h"
#include "base/extremes.h"
#include "base/text.h"
#include "describe/engine.h"
#include "describe/expert_load.h"
#include "describe/measured_keys.h"
#include "forecast/teacher_forecast.h"
#include "host/heap.h"
#include "runtime/training_request.h"
#include "simulate/shared_cores.h"

// ---- the machine ----

static double peak_of(const ot_cluster *cluster, ot_dtype compute) {
  const double *const flops = cluster->device.flops;
  return flops[compute] > 0 ? flops[compute] : flops[OT_F32];
}

ot_status ot_prediction_check(const ot_cluster *cluster, ot_backend backend) {
  const ot_device_kind *const device = &cluster->device;
  const bool measured = ot_cluster_basis_measured(cluster->basis) || ot_device_is_host(device);
  const ot_backend_rules *const rules = ot_backend_rules_of(backend);
  OT_CHECK(!measured || ot_device_kind_backend(device) == backend, OT_USAGE,
           "%s describes %s, and the run is on %s (`orthant bench --device %s --out FILE`, then "
           "cluster: FILE)",
           cluster->name, rules->host ? device->name : "a CPU", rules->where, rules->key);
  return OT_OK;
}

static ot_status find_cluster(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out) {
  const ot_cluster *const measured = request->cluster;
  const int ranks = request->mesh ? request->mesh->ranks : 1, threads = measured->device.threads;
  const int all = ranks + ot_run_teacher_ranks(request->run) + ot_run_generators(request->run);
  const bool spread = request->local_ranks > 0 && request->local_ranks < ranks;
  OT_CHECK(threads == 0 || !spread || ot_cluster_has_hosts(measured), OT_USAGE,
           "%s describes one machine (threads=%d), but %d ranks are on several (mpirun orthant "
           "bench)",
           measured->name, threads, ranks);
  OT_TRY(ot_cluster_share(measured, all, request->threads, &out->cluster));
  out->doubt = ot_measured_warning(measured, arena);
  out->products = request->run->precision.compute;
  out->peak_flops = all * peak_of(&out->cluster, out->products);
  out->basis = ot_arena_format(
      arena, "MFU is relative to %.4g GFLOP/s a rank: %s", 1e-9 * out->peak_flops / all,
      threads > 0 || (ot_cluster_basis_measured(measured->basis) &&
                      measured->device.matrix_efficiency == 0)
          ? "the fastest matmul that `orthant bench` measured, not a data sheet's peak"
          : ot_arena_format(arena, "the peak of %s in %s", out->cluster.device.name,
                            ot_dtype_name(out->products)));
  if (threads == 0 || (measured->num_devices == all && threads == request->threads)) return OT_OK;
  out->note = ot_arena_format(
      arena, "%s was measured with %d rank%s of %d thread%s at once; scaled to %d of %d",
      measured->name, measured->num_devices, ot_text_plural(measured->num_devices, "s"), threads,
      ot_text_plural(threads, "s"), all, request->threads);
  return OT_OK;
}

// ---- schedules ----

static void keep_fuller(int rank, const ot_memory_breakdown *arena, int64_t teacher,
                        ot_predicted_memory *out) {
  if (arena->peak_bytes + teacher <= out->arena.peak_bytes + out->teacher) return;
  out->rank = rank;
  out->arena = *arena;
  out->teacher = teacher;
}

static ot_status plan_stages(const ot_prediction_request *request, ot_arena *arena,
                             ot_prediction *out) {
  const ot_mesh *const mesh = request->mesh;
  const ot_device_kind *const device = &out->cluster.device;
  ot_predicted_memory *const memory = &out->memory;
  ot_planned_run planned = {.run = request->run,
                            .mesh = mesh,
                            .threads = request->threads,
                            .backend = ot_device_kind_backend(&request->cluster->device)};
  OT_TRY(ot_training_read_order(&planned, arena));
  out->num_stages = ot_planned_run_stages(&planned);
  out->schedules = ot_arena_array(arena, out->num_stages, sizeof *out->schedules);
  OT_TRY(ot_planned_run_each_stage(&planned, arena, out->schedules));
  for (int i = 0; i < out->num_stages; i++) {
    const ot_schedule *const schedule = out->schedules[i];
    const bool teaches = out->teacher_ranks == 0 && ot_schedule_runs_head(schedule);
    keep_fuller(ot_rank_of_stage(mesh, i), &schedule->memory, teaches ? out->teacher.bytes : 0,
                memory);
  }
  const ot_memory_breakdown none = {0};
  if (out->teacher_ranks > 0)
    keep_fuller(mesh ? mesh->ranks : 1, &none, out->teacher.bytes, memory);
  memory->context = ot_engine_context_bytes(&ot_engine_orthant, device);
  memory->capacity = ot_device_capacity(device);
  const int64_t needed = memory->arena.peak_bytes + memory->teacher + memory->context;
  memory->fits = needed <= memory->capacity;
  return OT_OK;
}

// ---- replays ----

static ot_simulation machine_of(const ot_prediction *prediction, ot_dtype products) {
  const ot_cluster *const cluster = &prediction->cluster;
  ot_simulation simulation =
      ot_simulation_of(cluster, ot_engine_style(&ot_engine_orthant, &cluster->device), products);
  simulation.more_rounds = prediction->more_rounds;
  simulation.more_rows = prediction->more_rows;
  return simulation;
}

static ot_pipeline_replay step_of(const ot_prediction *prediction, int micro_batches) {
  return (ot_pipeline_replay){.schedules = prediction->schedules,
                              .num_stages = prediction->num_stages,
                              .kind = OT_ORDER_STEP,
                              .micro_batches = micro_batches};
}

static ot_status replay(const ot_prediction *prediction, const ot_pipeline_replay *stages,
                        ot_arena *arena, ot_timeline *timelines) {
  double stretch;
  const ot_simulation machine = machine_of(prediction, prediction->products);
  return ot_schedules_simulate_shared(stages, &machine, arena, timelines, &stretch);
}

ot_status ot_prediction_replay(const ot_prediction *prediction, int micro_batches, ot_arena *arena,
                               ot_timeline *timelines) {
  const ot_pipeline_replay step = step_of(prediction, micro_batches);
  return replay(prediction, &step, arena, timelines);
}

ot_status ot_prediction_replay_validation(const ot_prediction *prediction, ot_arena *arena,
                                          ot_timeline *timelines) {
  ot_pipeline_replay order = step_of(prediction, 0);
  order.kind = ot_order_of_mode(OT_MODE_EVALUATE);
  return replay(prediction, &order, arena, timelines);
}

ot_status ot_prediction_replay_publish(const ot_prediction *prediction, ot_arena *arena,
                                       ot_timeline *timelines) {
  ot_pipeline_replay order = step_of(prediction, 0);
  order.kind = OT_ORDER_PUBLISH;
  return replay(prediction, &order, arena, timelines);
}

static void add_teacher(const ot_prediction *p, int dp, ot_predicted_step *step) {
  ot_step_figures *const figures = &step->expected;
  const double own_s = figures->step_s;
  step->teacher_s =
      ot_teacher_wait_s(&p->teacher, p->teacher_ranks, dp, step->micro_batches, own_s);
  figures->step_s = own_s + step->teacher_s;
  figures->bubble_fraction *= own_s / figures->step_s;
}

// ---- steps ----

static ot_status predict_step(const ot_prediction *p, ot_arena *arena, ot_predicted_step *step) {
  const int num_stages = p->num_stages, ranks = p->schedules[0]->ranks;
  ot_timeline *const timelines = ot_arena_array(arena, num_stages, sizeof *timelines);
  ot_step_figures *const figures = &step->expected;
  const ot_pipeline_replay stages = step_of(p, step->micro_batches);
  const ot_simulation machine = machine_of(p, p->products);
  OT_TRY(ot_schedules_simulate_shared(&stages, &machine, arena, timelines, &step->stretch));
  for (int i = 0; i < num_stages; i++) {
    const ot_timeline_summary sum = ot_timeline_summarize(&timelines[i], p->schedules[i]);
    if (sum.total_s > figures->step_s) figures->step_s = sum.total_s;
    for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
      figures->exposed_axis_s[axis] += sum.exposed_axis_s[axis] / num_stages;
    }
    for (int k = 0; k < OT_TIMELINE_PARTS; k++) figures->part_s[k] += sum.part_s[k] / num_stages;
    figures->bubble_fraction += sum.bubble_fraction / num_stages;
    step->model_flops += sum.model_flops * (ranks / num_stages);
  }
  return OT_OK;
}

static ot_status predict_steps(int dp, ot_arena *arena, ot_prediction *out) {
  const ot_schedule *const first = out->schedules[0];
  out->steps = ot_arena_array(arena, first->num_orders, sizeof *out->steps);
  for (int i = 0; i < first->num_orders; i++) {
    if (first->orders[i].kind != OT_ORDER_STEP) continue;
    ot_predicted_step *const step = &out->steps[out->num_steps++];
    *step = (ot_predicted_step){.micro_batches = first->orders[i].micro_batches};
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = predict_step(out, &scratch, step);
    ot_heap_release(&heap);
    OT_TRY(status);
    add_teacher(out, dp, step);
  }
  return OT_OK;
}

static ot_status predict_publishing(const ot_prediction_request *request, ot_arena *arena,
                                    ot_prediction *out) {
  if (ot_run_generators(request->run) == 0) return OT_OK;
  ot_timeline *const timelines = ot_arena_array(arena, out->num_stages, sizeof *timelines);
  OT_TRY(ot_prediction_replay_publish(out, arena, timelines));
  out->publish_s = timelines[0].total_s;
  return OT_OK;
}

static void count_overflow(const ot_prediction_request *request, ot_prediction *out) {
  const ot_run_parallel *const p = &request->run->parallel;
  const double more = request->expert_passes - 1;
  out->more_rounds =
      ot_expert_overflow_passes(&request->run->model.moe, p, request->expert_imbalance);
  if (request->expert_passes <= 0) return;
  out->more_rounds = ot_larger(more, 0);
  if (more > 0) out->more_rows = ot_expert_overflow_rows(p->expert_buffer, more);
}

ot_status ot_prediction_build(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out) {
  *out = (ot_prediction){0};
  OT_TRY(find_cluster(request, arena, out));
  count_overflow(request, out);
  OT_TRY(ot_teacher_price_find(request->run, &out->cluster, request->threads, &out->teacher));
  if (out->teacher.parameters > 0) out->teacher_ranks = ot_run_teacher_ranks(request->run);
  OT_TRY(plan_stages(request, arena, out));
  OT_TRY(predict_publishing(request, arena, out));
  const ot_mesh *const mesh = request->mesh;
  const int dp = mesh ? mesh->degree[OT_AXIS_DP_REPLICATE] * mesh->degree[OT_AXIS_DP_SHARD] : 1;
  return predict_steps(dp, arena, out);
}

void ot_prediction_keep_steps(ot_prediction *prediction, ot_arena *arena) {
  ot_predicted_step *const steps = ot_arena_array(arena, prediction->num_steps, sizeof *steps);
  for (int i = 0; i < prediction->num_steps; i++) steps[i] = prediction->steps[i];
  *prediction = (ot_prediction){
      .peak_flops = prediction->peak_flops, .num_steps = prediction->num_steps, .steps = steps};
}

const ot_predicted_step *ot_prediction_find(const ot_prediction *prediction, int micro_batches) {
  for (int i = 0; i < prediction->num_steps; i++) {
    if (prediction->steps[i].micro_batches == micro_batches) return &prediction->steps[i];
  }
  return NULL;
}
