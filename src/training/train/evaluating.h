// SPDX-License-Identifier: Apache-2.0
// Validations and evaluations of a running loop. For an evaluation, one rank of each machine has an
// engine of its own, as `orthant score` has, and before each evaluation a copy of the weights in
// float32; a model that is too large for one rank has engines that are pipelines of ranks
// (run_tasks.h). Neither changes a bit, so the figures are those of `orthant score` on the
// checkpoint of the step, whatever the mesh; and nothing of the training is touched. Engines share
// the sequences out; ranks without one wait. Private to train/.
#pragma once

#include "forecast/run_tasks.h"
#include "train/session.h"

typedef struct ot_evaluating {
  ot_run_tasks tasks;
  ot_runtime *runtime;   // null: this rank computes nothing
  ot_inference *engine;  // of it; null: this rank follows another one, or computes nothing
  ot_run_tasks_engines engines;
  int64_t share, shares;  // of the sequences
  double spent_s;         // in all evaluations of this process
  double after_begin_s;   // in those after the first step began
  int64_t times;          // of these
} ot_evaluating;

// Reads the tasks and allocates the memory. Collective over the world.
ot_status ot_evaluating_begin(ot_evaluating *evaluating, const ot_session *s);
void ot_evaluating_end(ot_evaluating *evaluating);

// Bytes of this rank's engine.
int64_t ot_evaluating_bytes(const ot_evaluating *evaluating);

// Evaluates the state after `step`, and reports the figures. A stop signal ends it, without
// figures. Collective over the world.
ot_status ot_evaluating_run(ot_evaluating *evaluating, ot_session *s, int64_t step);

// Seconds of the evaluations that are still to come after `step`, as far as known.
double ot_evaluating_remaining_s(const ot_evaluating *evaluating, const ot_session *s,
                                 int64_t step);

// Validates the state after `step` on the run's sets, and reports the losses. Collective over the
// world.
ot_status ot_evaluating_validate(ot_session *s, int64_t step);
