// SPDX-License-Identifier: Apache-2.0
// Ranks of a stage are taken to be in step, so the first of each stands for all.
#include "train/prediction.h"

#include "simulate/simulate.h"

typedef struct stage {
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
} stage;

static ot_status plan_stage(const ot_prediction_request *request, int index, ot_arena *arena,
                            stage *out) {
  const int first[4] = {0};
  ot_instance_request wanted = {.mesh = request->mesh};
  if (request->mesh) wanted.rank = ot_mesh_rank(request->mesh, first, index);
  OT_TRY(ot_trainer_request(request->run, arena, &wanted));
  wanted.threads = request->threads;
  return ot_instance_plan(&wanted, arena, out->graphs, &out->schedule);
}

static double peak_of(const ot_cluster *cluster, ot_dtype compute) {
  const double *const flops = cluster->device.flops;
  return flops[compute] > 0 ? flops[compute] : flops[OT_F32];
}

// Prices the step orders of the stages with as many micro-batches as order `order` of the first.
static ot_status price(const ot_prediction_request *request, const ot_pipeline_play *play,
                       ot_arena *arena, ot_predicted_step *out) {
  const ot_simulation simulation = {.cluster = request->cluster,
                                    .other_flops_per_s = request->cluster->device.other_flops_per_s,
                                    .launch_s = request->cluster->device.launch_s};
  const int ranks = request->mesh ? request->mesh->ranks : 1;
  ot_timeline *const timelines = ot_arena_array(arena, play->num_stages, sizeof *timelines);
  *out = (ot_predicted_step){.micro_batches = play->micro_batches};
  OT_TRY(ot_schedules_simulate(play, &simulation, arena, timelines));
  for (int i = 0; i < play->num_stages; i++) {
    const ot_schedule *const schedule = play->schedules[i];
    const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, play->micro_batches);
    if (timelines[i].total_s > out->step_s) out->step_s = timelines[i].total_s;
    out->model_flops += ot_order_flops(schedule, order, true) * (ranks / play->num_stages);
  }
  return OT_OK;
}

ot_status ot_prediction_build(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out) {
  const ot_mesh *const mesh = request->mesh;
  const int num_stages = mesh ? mesh->degree[OT_AXIS_PP] : 1;
  stage *const stages = ot_arena_array(arena, num_stages, sizeof *stages);
  const ot_schedule **const schedules = ot_arena_array(arena, num_stages, sizeof *schedules);
  for (int i = 0; i < num_stages; i++) {
    OT_TRY(plan_stage(request, i, arena, &stages[i]));
    schedules[i] = &stages[i].schedule;
  }
  const int num_orders = schedules[0]->num_orders;
  *out = (ot_prediction){.peak_flops = peak_of(request->cluster, request->run->precision.compute) *
                                       (mesh ? mesh->ranks : 1),
                         .steps = ot_arena_array(arena, num_orders, sizeof *out->steps)};
  for (int i = 0; i < num_orders; i++) {
    if (schedules[0]->orders[i].kind != OT_ORDER_STEP) continue;
    const ot_pipeline_play play = {.schedules = schedules,
                                   .num_stages = num_stages,
                                   .kind = OT_ORDER_STEP,
                                   .micro_batches = schedules[0]->orders[i].micro_batches};
    OT_TRY(price(request, &play, arena, &out->steps[out->num_steps++]));
  }
  return OT_OK;
}

const ot_predicted_step *ot_prediction_find(const ot_prediction *prediction, int micro_batches) {
  for (int i = 0; i < prediction->num_steps; i++) {
    if (prediction->steps[i].micro_batches == micro_batches) return &prediction->steps[i];
  }
  return NULL;
}
