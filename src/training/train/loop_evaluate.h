// SPDX-License-Identifier: Apache-2.0
// Evaluations of a running loop. One rank of each machine has an engine of its own, as `orthant
// score` has, and before each evaluation a copy of the weights in float32; a model that is too
// large for one rank has engines that are pipelines of ranks (run_tasks.h). Neither changes a bit,
// so the figures are those of `orthant score` on the checkpoint of the step, whatever the mesh; and
// nothing of the training is touched. Engines share the sequences out; ranks without one wait.
// Private to train/loop*.c.
#pragma once

#include "train/run_tasks.h"

struct ot_loop;

typedef struct ot_loop_evaluation {
  ot_run_tasks tasks;
  ot_runtime *runtime;   // null: this rank computes nothing
  ot_inference *engine;  // of it; null: this rank follows another one, or computes nothing
  ot_run_tasks_engines engines;
  int64_t share, shares;  // of the sequences
  double spent_s;         // in all evaluations of this process
  double after_begin_s;   // in those after the first step began
  int64_t times;          // of these
} ot_loop_evaluation;

// Reads the tasks and allocates the memory. Collective over the world.
ot_status ot_loop_evaluate_begin(struct ot_loop *l);
void ot_loop_evaluate_end(struct ot_loop *l);

// Bytes of this rank's engine.
int64_t ot_loop_evaluate_bytes(const struct ot_loop *l);

// Evaluates the state after `step`, and reports the figures. A stop signal ends it, without
// figures. Collective over the world.
ot_status ot_loop_evaluate(struct ot_loop *l, int64_t step);

// Seconds of the evaluations that are still to come after `step`, as far as known.
double ot_loop_evaluate_remaining_s(const struct ot_loop *l, int64_t step);
