// SPDX-License-Identifier: Apache-2.0
// Steps between checkpoints with `checkpoint.every: auto`: the interval of Daly 2006
// (simulate/goodput.h) from what saves and steps of this process took. Pure.
#pragma once

#include <stdint.h>

#include "describe/run.h"

// Seconds, means of the process.
typedef struct ot_save_times {
  double mtbf_s;     // of the job, > 0
  double blocked_s;  // of a save, in which no step runs, >= 0
  double save_s;     // from its begin to its end, >= blocked_s
  double step_s;     // > 0
} ot_save_times;

// checkpoint.mtbf_hours; if that is unknown, the default rate of goodput for `ranks` devices.
double ot_save_interval_mtbf(const ot_run_checkpoint *checkpoint, int ranks);

// The nearest number of steps, at least 1, and at least those that run while a save is written.
int64_t ot_save_interval_steps(const ot_save_times *times);
