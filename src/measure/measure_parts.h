// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of a measurement. Repeated runs are summarised by their first quartile,
// because other load on the machine makes some runs longer and none shorter.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "describe/cluster.h"

enum { OT_TIMINGS_MOST = 192 };

typedef struct ot_timings {
  int64_t count;                    // runs, of which the first OT_TIMINGS_MOST are kept
  double seconds[OT_TIMINGS_MOST];  // sorted by ot_timings_sort
} ot_timings;

void ot_timings_add(ot_timings *timings, double seconds);

// Seconds of one run, and the interquartile range relative to the median. Sorts `timings`.
typedef struct ot_timing {
  double seconds, spread;
} ot_timing;
ot_timing ot_timings_read(ot_timings *timings);

// Kernel rates inside steps: small models of several families and parallel configurations are
// trained for a few steps, and the constants of each kind of kernel are fitted to its task times.
typedef struct ot_measured_kernels {
  ot_kernel_rates *rates;  // [num_rates] one per kind of op
  int64_t num_rates;
  double launch_s;  // between two kernels of a step
} ot_measured_kernels;

typedef struct ot_kernel_trials {
  int ranks, threads;  // of each
  bool quick;
} ot_kernel_trials;

// With `ranks` concurrent ranks of `threads` threads. In `arena`. Blocks.
ot_status ot_measure_kernels(const ot_kernel_trials *trials, ot_arena *arena,
                             ot_measured_kernels *out);

// Latency and rate of collectives and messages on one machine, by kind and number of ranks.
typedef struct ot_measured_links {
  ot_collective_rates *rates;  // [num_rates]
  int64_t num_rates;
} ot_measured_links;

// Among 2, 4, 8, ... up to `most` ranks. In `arena`. Blocks.
ot_status ot_measure_links(int most, bool quick, ot_arena *arena, ot_measured_links *out);
