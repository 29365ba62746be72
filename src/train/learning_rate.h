// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step, and how far a run has come: in steps for a run by steps, in tokens
// for a run by tokens, so that the schedule follows the tokens done whatever the batch does.
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

// Where the run stands before step `step` (counted from 0), in its own unit.
ot_progress ot_run_progress(const ot_run *run, int64_t step);
