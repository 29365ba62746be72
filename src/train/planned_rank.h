// SPDX-License-Identifier: Apache-2.0
// One rank of a run as it will be trained, without memory for it: for dry runs, predictions, traces
// and proofs.
#pragma once

#include "describe/mesh.h"
#include "runtime/model_runtime.h"

typedef struct ot_planned_rank {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  int rank, threads;    // threads per kernel if the run does not set them
  ot_backend backend;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
} ot_planned_rank;

// Fills in graphs and schedule, lists in `arena`; also for types that the back end lacks. The
// schedule is not checked.
ot_status ot_planned_rank_build(ot_planned_rank *planned, ot_arena *arena);
