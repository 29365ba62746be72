// SPDX-License-Identifier: Apache-2.0
// The slowdown of kernels whose ranks share the cores of a measured machine, from the schedules
// that training builds: one rank stands for each stage.
#include "describe/expert_load.h"
#include "estimate/estimate.h"
#include "estimate/estimator.h"
#include "schedule/planned_run.h"
#include "simulate/shared_cores.h"

// The run of a candidate, and its ranks.
typedef struct candidate_run {
  ot_run run;
  ot_run_lists lists;
  ot_mesh mesh;
} candidate_run;

ot_status ot_estimator_stretch(ot_estimator *e, const ot_candidate *candidate, double *stretch) {
  ot_arena scratch = ot_arena_pool_begin(&e->scratch);
  candidate_run *const own = ot_arena_take(&scratch, sizeof *own);
  ot_candidate_run(&e->job, candidate, &own->lists, &own->run);
  OT_TRY(ot_mesh_build(&own->run.parallel, e->job.devices, &own->mesh));
  const ot_planned_run planned = {.run = &own->run,
                                  .mesh = &own->mesh,
                                  .threads = e->threads,
                                  .backend = ot_device_kind_backend(&e->cluster.device)};
  const int stages = ot_planned_run_stages(&planned);
  const ot_schedule **const schedules = ot_arena_array(&scratch, stages, sizeof(ot_schedule *));
  ot_timeline *const timelines = ot_arena_array(&scratch, stages, sizeof *timelines);
  OT_TRY(ot_planned_run_each_stage(&planned, &scratch, schedules));
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
