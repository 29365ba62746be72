// SPDX-License-Identifier: Apache-2.0
// Runs of one thing, and what stands for them. Now and then something else runs on a machine, which
// makes runs longer and never shorter: the first quartile is taken.
#pragma once

#include <stdint.h>

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
