// SPDX-License-Identifier: Apache-2.0
// Every schedule is built from the request that training makes.
#include "schedule/planned_run.h"

#include "schedule/schedule_match.h"

ot_status ot_planned_run_rank(const ot_planned_run *planned, int rank, ot_arena *arena,
                              ot_schedule *schedule) {
  ot_rank_request request;
  ot_graph *const graphs = ot_arena_array(arena, OT_MODES, sizeof *graphs);
  OT_TRY(ot_rank_request_train(planned->run, planned->mesh, rank, arena, &request));
  if (request.graph.threads == 0) request.graph.threads = planned->threads;
  request.graph.backend = planned->backend;
  request.schedule.order_csv = planned->order_csv;
  return ot_rank_build(&request, arena, graphs, schedule);
}

int ot_planned_run_stages(const ot_planned_run *planned) {
  return planned->mesh ? planned->mesh->degree[OT_AXIS_PP] : 1;
}

ot_status ot_planned_run_each_stage(const ot_planned_run *planned, ot_arena *arena,
                                    const ot_schedule **schedules) {
  for (int stage = 0; stage < ot_planned_run_stages(planned); stage++) {
    ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
    const int rank = ot_rank_of_stage(planned->mesh, stage);
    OT_TRY(ot_planned_run_rank(planned, rank, arena, schedule));
    schedules[stage] = schedule;
  }
  return OT_OK;
}

// ---- proof ----

static int64_t entries_of(const ot_schedule *schedule) {
  int64_t entries = 0;
  for (int i = 0; i < schedule->num_orders; i++) entries += schedule->orders[i].num_entries;
  return entries;
}

ot_status ot_planned_run_prove(const ot_planned_run *planned, ot_arena *arena) {
  const int ranks = planned->mesh ? planned->mesh->ranks : 1;
  if (ranks == 1 || ranks > OT_PROVEN_RANKS) return OT_OK;
  const ot_schedule **const schedules = ot_arena_array(arena, ranks, sizeof *schedules);
  int64_t entries = 0;
  for (int rank = 0; rank < ranks; rank++) {
    ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
    OT_TRY(ot_planned_run_rank(planned, rank, arena, schedule));
    OT_TRY(ot_schedule_check(schedule, arena));
    schedules[rank] = schedule;
    entries += entries_of(schedule);
    if (entries / (rank + 1) * ranks > OT_PROVEN_ENTRIES) return OT_OK;
  }
  return ot_schedules_match(schedules, ranks, arena);
}
