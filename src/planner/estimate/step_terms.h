// SPDX-License-Identifier: Apache-2.0
// The terms of a step: their names, identical in reports, web pages and plan comparisons, and their
// meaning.
#pragma once

#include "estimate/estimate.h"
#include "schedule/timeline.h"

enum { OT_STEP_TERMS = 6 + OT_TIMELINE_AXES };

typedef struct ot_step_term {
  const char *name;     // "compute", "exposed tp"
  const char *meaning;  // one clause
  double seconds;
} ot_step_term;

// Terms that add up to step_s, in the order in which pages show them.
//   terms  [OT_STEP_TERMS]
void ot_step_terms(const ot_estimate *estimate, ot_step_term *terms);
