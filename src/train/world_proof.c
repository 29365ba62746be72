// SPDX-License-Identifier: Apache-2.0
// All schedules are in memory at once, which is what limits their number.
#include "train/world_proof.h"

#include "host/heap.h"
#include "schedule/schedule_match.h"
#include "train/trainer.h"

ot_status ot_rank_plan(ot_planned_rank *planned, ot_arena *arena) {
  ot_instance_request wanted = {.mesh = planned->mesh, .rank = planned->rank};
  OT_TRY(ot_trainer_check(planned->run));
  OT_TRY(ot_trainer_request(planned->run, arena, &wanted));
  if (wanted.threads == 0) wanted.threads = planned->threads;
  OT_TRY(ot_instance_plan(&wanted, arena, planned->graphs, &planned->schedule));
  return ot_schedule_check(&planned->schedule, arena);
}

static int64_t entries_of(const ot_schedule *schedule) {
  int64_t entries = 0;
  for (int i = 0; i < schedule->num_orders; i++) entries += schedule->orders[i].num_entries;
  return entries;
}

static ot_status prove(const ot_run *run, const ot_mesh *mesh, ot_arena *arena) {
  const ot_schedule **const schedules = ot_arena_array(arena, mesh->ranks, sizeof *schedules);
  int64_t entries = 0;
  for (int rank = 0; rank < mesh->ranks; rank++) {
    ot_planned_rank *const planned = ot_arena_take(arena, sizeof *planned);
    *planned = (ot_planned_rank){.run = run, .mesh = mesh, .rank = rank, .threads = 1};
    OT_TRY(ot_rank_plan(planned, arena));
    schedules[rank] = &planned->schedule;
    entries += entries_of(&planned->schedule);
    if (entries / (rank + 1) * mesh->ranks > OT_PROVEN_ENTRIES) return OT_OK;
  }
  return ot_schedules_match(schedules, mesh->ranks, arena);
}

ot_status ot_world_prove(const ot_run *run, const ot_mesh *mesh) {
  if (!mesh || mesh->ranks == 1) return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = prove(run, mesh, &arena);
  ot_heap_release(&heap);
  return status;
}
