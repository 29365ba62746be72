// SPDX-License-Identifier: Apache-2.0
// What the parts of a measurement share. Runs of one thing, and what stands for them: now and then
// something else runs on a machine, which makes runs longer and never shorter: the first quartile
// is taken.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "describe/cluster.h"

enum { OT_TIMINGS_MOST = 192 };

typedef struct ot_timings {
  int64_t count;                    // of the runs, of which the first OT_TIMINGS_MOST are kept
  double seconds[OT_TIMINGS_MOST];  // sorted by ot_timings_sort
} ot_timings;

void ot_timings_add(ot_timings *timings, double seconds);

// What one run takes, and the distance of its quartiles as a share of the median; sorts.
typedef struct ot_timing {
  double seconds, spread;
} ot_timing;
ot_timing ot_timings_read(ot_timings *timings);

// What kernels take inside steps: small models of several families and splits are trained for a few
// steps, and the constants of each kind of kernel are fitted to what its tasks took.
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

// What ranks of one machine take for collectives and messages, by size and number of ranks.
typedef struct ot_measured_links {
  ot_collective_rates *rates;  // [num_rates]
  int64_t num_rates;
} ot_measured_links;

// Among 2, 4, 8, ... up to `most` ranks. In `arena`. Blocks.
ot_status ot_measure_links(int most, bool quick, ot_arena *arena, ot_measured_links *out);
