// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a comparison of two records share. Private to judge/.
#pragma once

#include "judge/judge_pair.h"
#include "judge/judge_parts.h"

typedef struct comparison {
  ot_judged_pass *pass;
  ot_judged_pair *pair;
  ot_judge_report *report;  // the pair's difference
  ot_arena *arena;
  ot_attributions found;  // what explains the difference of the gradients
  int largest;            // the tensor of the report that differs most; -1: there is none
  bool beyond;            // it is not only rounding
} comparison;

// Each adds a part on what both records have of it, and clears pair->same_values if it differs.
void ot_compare_loss(const comparison *comparison);
void ot_compare_norm(const comparison *comparison);
// Weights after the step. Reads them.
ot_status ot_compare_weights(const comparison *comparison);
