// SPDX-License-Identifier: Apache-2.0
// The slowdown of kernels whose ranks share the cores of a measured machine, from the schedules
// that training builds: one rank stands for each stage.
#include "describe/expert_load.h"
#include "plan/estimator.h"
#include "schedule/rank_request.h"
#include "simulate/shared_cores.h"

// The run of a candidate, and its ranks.
typedef struct candidate_run {
  ot_run run;
  ot_run_lists lists;
  ot_mesh mesh;
} candidate_run;

static ot_status build_stage(const ot_estimator *e, const candidate_run *own, int stage,
                             ot_arena *arena, ot_schedule *schedule) {
  const int rank = ot_rank_of_stage(&own->mesh, stage);
  ot_graph *const graphs = ot_arena_array(arena, OT_MODES, sizeof *graphs);
  ot_rank_request request;
  OT_TRY(ot_rank_request_train(&own->run, &own->mesh, rank, arena, &request));
  if (request.graph.threads == 0) request.graph.threads = e->threads;
  request.graph.backend = ot_device_kind_backend(&e->cluster.device);
  return ot_rank_build(&request, arena, graphs, schedule);
}

ot_status ot_estimator_stretch(ot_estimator *e, const ot_candidate *candidate, double *stretch) {
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  candidate_run *const own = ot_arena_take(&scratch, sizeof *own);
  ot_candidate_run(&e->job, candidate, &own->lists, &own->run);
  OT_TRY(ot_mesh_build(&own->run.parallel, e->job.devices, &own->mesh));
  const int stages = own->mesh.degree[OT_AXIS_PP];
  const ot_schedule **const schedules = ot_arena_array(&scratch, stages, sizeof(ot_schedule *));
  ot_timeline *const timelines = ot_arena_array(&scratch, stages, sizeof *timelines);
  for (int i = 0; i < stages; i++) {
    ot_schedule *const schedule = ot_arena_take(&scratch, sizeof *schedule);
    OT_TRY(build_stage(e, own, i, &scratch, schedule));
    schedules[i] = schedule;
  }
  ot_simulation machine = ot_simulation_of(
      &e->cluster, ot_engine_style(e->job.engine, &e->cluster.device), own->run.precision.compute);
  machine.more_rounds =
      ot_expert_overflow_passes(&own->run.model.moe, &own->run.parallel, e->job.expert_imbalance);
  const ot_pipeline_replay step = {
      .schedules = schedules,
      .num_stages = stages,
      .kind = OT_ORDER_STEP,
      .micro_batches =
          (int)(own->run.batch.global_batch_size / ot_run_round_sequences(&own->run, &own->mesh))};
  return ot_schedules_simulate_shared(&step, &machine, &scratch, timelines, stretch);
}
