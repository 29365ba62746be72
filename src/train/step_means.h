// SPDX-License-Identifier: Apache-2.0
// What the steps of a process took on the mean beside what they were predicted to take: the table
// at the end of a run. The first step is left out where there are more: memory is touched for the
// first time in it.
#pragma once

#include "base/arena.h"
#include "schedule/timeline.h"

// Of one step, or sums over many; all but the length of the step are means over ranks.
typedef struct ot_step_figures {
  double step_s;
  double part_s[OT_TIMELINE_PARTS];
  double exposed_axis_s[OT_TIMELINE_AXES];
  double bubble_fraction;
} ot_step_figures;

typedef struct ot_step_means {
  int64_t num_steps;                    // in the sums
  int64_t num_predicted;                // of them
  bool warm;                            // there was a step before
  ot_step_figures measured, predicted;  // sums
} ot_step_means;

// `predicted` may be null.
void ot_step_means_add(ot_step_means *means, const ot_step_figures *measured,
                       const ot_step_figures *predicted);

// Lines of text: step time, what of it are kernels by part, exposed milliseconds by axis, the
// bubble. Null where there is nothing
// to say: no second step, or one rank without a prediction.
const char *ot_step_means_print(const ot_step_means *means, int ranks, ot_arena *arena);
