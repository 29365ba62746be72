// SPDX-License-Identifier: Apache-2.0
// The exchange of ranks at the end of a step: stop requests, counters that changed in memory, means
// of their timelines, and, once in a window of steps, their times, by which stragglers are found.
// With the agreement on the samples at its begin, it is all that the hosts exchange in a step.
// Private to train/.
#pragma once

#include "record/straggler.h"
#include "train/session.h"

typedef struct ot_step_exchange {
  bool finds_stragglers;
  ot_straggler_window window;
  ot_straggler_history history;  // equal on all ranks
  double *values;                // [OT_WORLD_VALUES + size]
  double *scratch;               // [size]
  int *work;                     // [size] equal for ranks with the same work
} ot_step_exchange;

// This rank's values.
typedef struct ot_step_own {
  const ot_step_report *report;
  bool saves;          // it is busy with a save that runs while training goes on
  bool copies;         // it is busy with a copy in memory
  int64_t save_every;  // steps between saves, which the leader chooses; 0 elsewhere
} ot_step_own;

// The values of all ranks.
typedef struct ot_step_sums {
  bool stop;  // a rank was asked to stop
  bool saves, copies;
  int64_t save_every;
  ot_loop_refusals refusals;
  ot_step_figures figures;  // means over ranks; NaN without a timeline
} ot_step_sums;

void ot_step_exchange_begin(ot_step_exchange *exchange, const ot_session *s);

// Collective over the world.
ot_status ot_step_exchange_sum(ot_step_exchange *exchange, const ot_session *s,
                               const ot_step_own *own, ot_step_sums *sums);
