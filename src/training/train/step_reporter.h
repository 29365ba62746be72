// SPDX-License-Identifier: Apache-2.0
// The record of each step: the line in metrics.jsonl with the prediction next to the
// measurement, the status line, and, at the end, means and a summary. Private to train/.
#pragma once

#include "forecast/prediction.h"
#include "train/evaluating.h"
#include "train/step_exchange.h"

typedef struct ot_step_reporter {
  double begin_s;            // clock when this process began its first step
  int64_t planned_bytes;     // of all ranks of this process
  ot_prediction prediction;  // on the leader; without steps if unknown
  ot_step_means means;
  ot_loop_summary summary;
  const ot_evaluating *evaluating;  // for the time that remains
} ot_step_reporter;

// Before the first step: sums the planned memory, and predicts the steps. Collective over the
// world.
ot_status ot_step_reporter_begin(ot_step_reporter *reporter, const ot_session *s);

// Records a step on the leader; all ranks combine the health. Collective over the world.
ot_status ot_step_reporter_add(ot_step_reporter *reporter, ot_session *s,
                               const ot_step_report *report, ot_step_sums *sums);

// After the last step, on the leader: a note with the means of the steps; the summary, with the
// newest checkpoint of this run (-1: none).
void ot_step_reporter_print_means(const ot_step_reporter *reporter, const ot_session *s);
void ot_step_reporter_print_summary(ot_step_reporter *reporter, const ot_session *s,
                                    int64_t saved_step);
