// SPDX-License-Identifier: Apache-2.0
// A few timed steps of a run with random weights and random tokens, on ranks that are threads of
// this process, without data and without a run directory.
#pragma once

#include "runtime/model_runtime.h"
#include "schedule/timeline.h"

// One step on one rank.
typedef struct ot_trial_step {
  int rank;
  int step;        // from 0, the step that touches memory for the first time
  double seconds;  // from the common start of all ranks to the end of this one
  const ot_schedule *schedule;
  const ot_timeline *timeline;
  double expert_passes;   // mean over all layers with experts and micro-batches; 0 without experts
  int64_t touched_bytes;  // highest byte of the arena written so far, plus one; 0 without `poison`
} ot_trial_step;

// Called on the thread of the rank; all ranks wait for it before the next step.
typedef ot_status (*ot_trial_callback)(void *context, const ot_trial_step *step);

typedef struct ot_trial {
  const ot_run *run;   // `data` and `output` are ignored
  int ranks;           // >= 1
  int threads;         // of each rank, >= 1
  ot_backend backend;  // on a GPU the timeline is from events
  int steps;           // >= 1
  bool poison;         // track written bytes; steps take longer
  ot_trial_callback on_step;
  void *context;  // of `hear`
} ot_trial;

// OT_RANKS and OT_USAGE as ot_mesh_build, OT_ENVIRONMENT without enough memory. Blocks.
ot_status ot_trial_run(const ot_trial *trial);
