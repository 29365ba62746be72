// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step, and the progress of a run: in steps for a run limited by steps, in
// tokens for a run limited by tokens, so that the decay follows the tokens trained on whatever the
// batch size does.
#pragma once

#include "describe/run.h"

// Factor of the peak at `done` of `total`, after a linear warm-up over `warmup` (same unit):
//   constant 1; linear, cosine from 1 to floor over `decay` (0 = to the end); wsd: 1, then linearly
//   to floor over the last `decay` (0 = a tenth of the run).
typedef struct ot_progress {
  double done;   // before the step: 0 at the first
  double total;  // of the whole run
  double warmup;
  double decay;
} ot_progress;

// The learning rate for a step at `progress` under `settings` with `peak`.
double ot_learning_rate(const ot_run_learning_rate *settings, double peak,
                        const ot_progress *progress);

// Progress of the run before step `step` (counted from 0), in the run's unit.
ot_progress ot_run_progress(const ot_run *run, int64_t step);
