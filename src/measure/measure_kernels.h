// SPDX-License-Identifier: Apache-2.0
// What kernels take inside steps: small models of several families and splits are trained for a few
// steps, and the constants of each kind of kernel are fitted to what its tasks took.
#pragma once

#include "base/arena.h"
#include "describe/cluster.h"

typedef struct ot_measured_kernels {
  ot_kernel_rates *rates;  // [num_rates] one for each kind of op
  int64_t num_rates;
  double launch_s;  // between two kernels of a step
} ot_measured_kernels;

typedef struct ot_kernel_trials {
  int ranks, threads;  // of each
  bool quick;
} ot_kernel_trials;

// With `ranks` ranks of `threads` threads at work. In `arena`. Blocks.
ot_status ot_measure_kernels(const ot_kernel_trials *trials, ot_arena *arena,
                             ot_measured_kernels *out);
