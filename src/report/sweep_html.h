// SPDX-License-Identifier: Apache-2.0
// The page of a sweep: its figures against one of the values that vary, a line for each combination
// of the others, and all points as a table.
#pragma once

#include "answer/sweep.h"

// The best plan with some values, or why there is none.
typedef struct ot_sweep_point {
  const char *value[OT_SWEEP_AXES];  // [num_axes]
  const char *reason;                // null: a plan fits
  const char *plan;                  // its configuration; the rest is zero without one
  double step_s, low_s, high_s;      // and its interval in 4 of 5 cases
  double mfu, tokens_per_s;
  double memory_bytes, capacity_bytes;
  double run_s, dollars;  // of the whole run; dollars 0: not asked for
} ot_sweep_point;

typedef struct ot_sweep_page {
  const char *title;  // "llama3-8b on h100"
  int num_axes;
  const char *axis[OT_SWEEP_AXES];  // [num_axes] options that vary
  int64_t num_points;
  const ot_sweep_point *points;  // [num_points]
} ot_sweep_page;

// Appends one self-contained HTML file: no network, no scripts.
void ot_sweep_html(const ot_sweep_page *page, ot_text_builder *out);
