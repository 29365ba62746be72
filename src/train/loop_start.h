// SPDX-License-Identifier: Apache-2.0
// How a run begins: its directory is locked, the state it goes on from is found and compared with
// the settings, the trainer is made. Private to the loop.
#pragma once

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
