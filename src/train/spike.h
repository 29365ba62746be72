// SPDX-License-Identifier: Apache-2.0
// Steps that stand out: how far a value is from the median of those before it, in standard
// deviations that the median deviation stands for, so that neither a trend nor an earlier spike
// moves the measure. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
  OT_SPIKE_WINDOW = 200,  // values that the median is of, at most
  OT_SPIKE_LEAST = 20,    // before so many nothing is said
};

typedef struct ot_spike_monitor {
  double values[OT_SPIKE_WINDOW];  // ring
  int64_t count;                   // of values so far
  double z;                        // of the last one; 0 while there are too few
  bool high;                       // the last z was above 8
} ot_spike_monitor;

// Takes the next value. True: an alarm, because z > 20, or z > 8 twice in a row. A value that is
// not finite is left out. Deviations below a thousandth of the median count as that.
bool ot_spike_add(ot_spike_monitor *monitor, double value);
