// SPDX-License-Identifier: Apache-2.0
// A few steps of a run with random weights and random tokens, on ranks that are threads of this
// process: what steps and their tasks take, where no data and no run directory are of interest.
#pragma once

#include "runtime/instance.h"
#include "schedule/timeline.h"

// One step on one rank.
typedef struct ot_trial_step {
  int rank;
  int step;        // from 0, which touches memory for the first time
  double seconds;  // from when all ranks had come until this one was done
  const ot_schedule *schedule;
  const ot_timeline *timeline;
  int64_t touched_bytes;  // highest byte of the arena written so far, plus one; 0 without `poison`
} ot_trial_step;

// Called on the thread of the rank, which all others wait for before the next step.
typedef ot_status (*ot_trial_hear)(void *context, const ot_trial_step *step);

typedef struct ot_trial {
  const ot_run *run;  // global batch, degrees and threads count; data and output do not
  int ranks;          // >= 1
  int threads;        // of each rank, >= 1
  int steps;          // >= 1
  bool poison;        // follow what is written; steps take longer
  ot_trial_hear hear;
  void *context;  // of `hear`
} ot_trial;

// OT_RANKS and OT_USAGE as ot_mesh_build, OT_ENVIRONMENT without enough memory. Blocks.
ot_status ot_trial_run(const ot_trial *trial);
