// SPDX-License-Identifier: Apache-2.0
// The parts of a step and of memory as charts and tables of the page show them: names, colours
// (classes of the style) and what they mean, once for all.
#pragma once

#include "plan/step_terms.h"

typedef struct ot_page_term {
  const char *name;     // "exposed tp"
  const char *class;    // "c-tp"
  const char *meaning;  // one clause
  double value;         // seconds or bytes
} ot_page_term;

enum { OT_MEMORY_TERMS = 8 };

// Seconds that add up to step_s.
//   terms  [OT_STEP_TERMS]
void ot_page_step_terms(const ot_estimate *estimate, ot_page_term *terms);

// Bytes that add up to reserved + context.
//   terms  [OT_MEMORY_TERMS]
void ot_page_memory_terms(const ot_memory_estimate *memory, ot_page_term *terms);
