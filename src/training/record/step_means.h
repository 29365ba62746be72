// SPDX-License-Identifier: Apache-2.0
// Mean measured and predicted times of the steps of a process: the table at the end of a run. The
// first step is excluded if there are more, because it touches memory for the first time.
#pragma once

#include "base/arena.h"
#include "schedule/timeline.h"

// The figures of one step, or sums over many; all but the step time are means over ranks, and NAN
// where no timeline was recorded.
typedef struct ot_step_figures {
  double step_s;
  double part_s[OT_TIMELINE_PARTS];
  double exposed_axis_s[OT_TIMELINE_AXES];
  double bubble_fraction;
} ot_step_figures;

typedef struct ot_step_means {
  int64_t num_steps;                    // in the sums
  int64_t num_predicted;                // of these, with a prediction
  bool warm;                            // there was a step before
  ot_step_figures measured, predicted;  // sums
} ot_step_means;

// `predicted` may be null.
void ot_step_means_add(ot_step_means *means, const ot_step_figures *measured,
                       const ot_step_figures *predicted);

// Lines of text: step time, kernel times by phase, exposed milliseconds by axis, the bubble. Null
// if there is nothing to report: no second step, or one rank without a prediction.
const char *ot_step_means_print(const ot_step_means *means, int ranks, ot_arena *arena);
