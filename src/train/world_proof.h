// SPDX-License-Identifier: Apache-2.0
// The schedules of a run's ranks, planned without taking their memory, and the proof that they fit
// each other.
#pragma once

#include "runtime/instance.h"

// One rank of the run on `mesh` (null: one rank) as it will be trained, checked: `graphs`
// [OT_MODES] and `schedule` in `arena`. `threads` of each kernel where the run does not say.
typedef struct ot_planned_rank {
  const ot_run *run;
  const ot_mesh *mesh;
  int rank, threads;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
} ot_planned_rank;
ot_status ot_rank_plan(ot_planned_rank *planned, ot_arena *arena);

// Proves that the schedules of all ranks fit each other (ot_schedules_match), where they have at
// most OT_PROVEN_ENTRIES entries together; OT_OK without a look beyond. Local; for one rank to
// call.
enum { OT_PROVEN_ENTRIES = 1 << 20 };
ot_status ot_world_prove(const ot_run *run, const ot_mesh *mesh);
