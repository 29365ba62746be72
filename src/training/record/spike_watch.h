// SPDX-License-Identifier: Apache-2.0
// Outlier steps of a run, and the run's answer to them. Loss and gradient norm are the same on all
// ranks, so each rank reaches the same answer without communication. Pure.
//
// A step that repeats after the same samples from the same state with the same bits is the work of
// the data and the weights. One that does not is a transient fault of the machine.
#pragma once

#include "describe/run.h"
#include "runtime/health.h"

// A run that goes back this often without a checkpoint beyond the outliers ends.
enum { OT_SPIKE_RETURNS = 5 };

// The figures of a step.
typedef struct ot_spike_step {
  int64_t step;  // completed steps
  double loss_nats, gradient_norm;
  int64_t first_sample, last_sample;
} ot_spike_step;

typedef struct ot_spike {
  const char *name;  // "loss", "grad_norm"
  double z;
} ot_spike;

// The next action of the run.
typedef enum ot_spike_answer {
  OT_SPIKE_CONTINUES,
  OT_SPIKE_ENDS,    // `reason` says why
  OT_SPIKE_SKIPS,   // it goes back and continues with the sample after those of the step
  OT_SPIKE_REPEATS  // it goes back and repeats the samples
} ot_spike_answer;

typedef struct ot_spike_watch {
  ot_spike_monitor loss, norm;
  int returns;            // since the last checkpoint beyond the outliers
  int64_t furthest;       // last outlier step
  ot_spike_step repeats;  // the outlier step that is being repeated; step 0: none
  const char *reason;     // of OT_SPIKE_ENDS: continues a sentence on the step
} ot_spike_watch;

// Adds a step; returns the number of `spikes` [2] in it.
int ot_spike_watch_add(ot_spike_watch *watch, const ot_spike_step *step, ot_spike spikes[2]);

// True if `step` is the repetition of an outlier and has other bits: a transient fault. False for
// all other steps.
bool ot_spike_watch_differs(ot_spike_watch *watch, const ot_spike_step *step);

// The answer to an outlier step.
ot_spike_answer ot_spike_watch_answer(ot_spike_watch *watch, ot_spike_action action,
                                      const ot_spike_step *step);

// A checkpoint of `step` completed steps was written.
void ot_spike_watch_saved(ot_spike_watch *watch, int64_t step);
