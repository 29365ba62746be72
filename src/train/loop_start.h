// SPDX-License-Identifier: Apache-2.0
// How a run begins: its directory is locked, the state it goes on from is found and compared with
// the settings, the trainer is made; and what a run and its dry run look at alike before the first
// step. Private to the loop.
#pragma once

#include "data/feed.h"
#include "runtime/instance.h"
#include "train/loop.h"
#include "train/prediction.h"
#include "train/run_directory.h"

typedef struct ot_loop_start {
  ot_run_directory *directory;  // of the leader; null on other ranks
  ot_trainer *trainer;
  bool finished;      // all steps were done before: there is nothing to do
  bool resumed_here;  // the state is that of a checkpoint in this directory
  bool went_back;     // on the leader: to one that --resume names, as the same command would again
} ot_loop_start;

ot_status ot_loop_start_open(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start);
void ot_loop_start_close(ot_loop_start *start);

// "8 ranks (pp 2 x dp_shard 2 x tp 2)", in `arena`.
const char *ot_loop_shape(const ot_mesh *mesh, ot_arena *arena);

// A sentence for the user, from the leader.
void ot_loop_note(const ot_loop_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Says what the prediction rests on.
void ot_loop_note_prediction(const ot_loop_request *request, const ot_prediction *prediction);

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

// Settings that are allowed and rarely meant; what cannot be is refused where settings are read
// (describe/run.h), data opened (feed.h) and memory taken (instance.h). Notes for the user: sizes
// of the model that were not given, a warm-up that the run does not reach the end of, a step that
// takes more tokens than there are. `feed` is the run's, of one rank.
void ot_loop_note_doubts(const ot_loop_request *request, const ot_feed *feed, ot_arena *arena);

// Free bytes where the output goes, and those of one checkpoint. OT_ENVIRONMENT when it does not
// fit. For one rank to call.
typedef struct ot_loop_room {
  int64_t free_bytes, checkpoint_bytes;
} ot_loop_room;
ot_status ot_loop_check_disk(const ot_loop_request *request, ot_arena *arena, ot_loop_room *room);
