// SPDX-License-Identifier: Apache-2.0
// The charts of a plan's page. Each appends a drawing with its legend; what it shows, and how to
// read it, the page says around it.
#pragma once

#include "base/text_builder.h"
#include "plan/scaling_curve.h"
#include "report/page_terms.h"
#include "report/plan_page.h"

// The terms of a step as one bar, with seconds and shares.
void ot_chart_terms(const ot_estimate *estimate, ot_text_builder *out);

// Memory of each stage, by class, against the capacity.
void ot_chart_memory(const ot_page_plan *plan, ot_text_builder *out);

// One step, a row for each stage. Long steps show their beginning and their end.
void ot_chart_timeline(const ot_candidate *candidate, const ot_played_step *step,
                       ot_text_builder *out);

// Terms of the step against the number of devices.
typedef struct ot_scaling_chart {
  const ot_scaling *scaling;
  int devices;  // of the job
  int64_t global_batch_size;
} ot_scaling_chart;
void ot_chart_scaling(const ot_scaling_chart *chart, ot_text_builder *out);

// <li> of a legend: a swatch of `class`, the name, and what follows it (may be "").
void ot_chart_legend(ot_text_builder *out, const char *class, const char *name, const char *text);
