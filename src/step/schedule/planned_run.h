// SPDX-License-Identifier: Apache-2.0
// Ranks of a run as they will be trained, without memory for them: for plans, dry runs,
// predictions, traces and proofs. Pure.
#pragma once

#include "schedule/rank_request.h"

typedef struct ot_planned_run {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  int threads;          // of a kernel, if the run does not set them
  ot_backend backend;
  const char *order_csv;  // contents of the file of parallel.order_csv, or null
} ot_planned_run;

// The schedule of `rank` and its graphs, in `arena`; also for types that the back end lacks. The
// schedule is not checked.
ot_status ot_planned_run_rank(const ot_planned_run *planned, int rank, ot_arena *arena,
                              ot_schedule *schedule);

// The stages of its pipeline.
int ot_planned_run_stages(const ot_planned_run *planned);

// `schedules` [stages] receives that of one rank for each stage (ot_rank_of_stage), in `arena`.
ot_status ot_planned_run_each_stage(const ot_planned_run *planned, ot_arena *arena,
                                    const ot_schedule **schedules);

// Proves that the schedules of all ranks match (ot_schedules_match), if they have at most
// OT_PROVEN_ENTRIES entries in total on at most OT_PROVEN_RANKS ranks: about 1 GB in `arena`.
// Returns OT_OK without a proof otherwise.
enum { OT_PROVEN_ENTRIES = 1 << 20, OT_PROVEN_RANKS = 64 };
ot_status ot_planned_run_prove(const ot_planned_run *planned, ot_arena *arena);
