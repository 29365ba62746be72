// SPDX-License-Identifier: Apache-2.0
// The parts of a plan's HTML page: terms, charts and tables. A chart appends a drawing with
// its legend; the page adds the heading and the text on how to read it.
#pragma once

#include "advise/scaling_curve.h"
#include "answer/plan_page.h"
#include "base/text_builder.h"
#include "estimate/step_terms.h"

// ---- terms: parts of a step and of memory as charts and tables show them ----

typedef struct ot_page_term {
  const char *name;     // "exposed tp"
  const char *class;    // "c-tp"
  const char *meaning;  // one clause
  double value;         // seconds or bytes
} ot_page_term;

enum { OT_MEMORY_TERMS = 9 };

// Seconds that add up to step_s.
//   terms  [OT_STEP_TERMS]
void ot_page_step_terms(const ot_estimate *estimate, ot_page_term *terms);

// Bytes that add up to reserved + context.
//   terms  [OT_MEMORY_TERMS]
void ot_page_memory_terms(const ot_memory_estimate *memory, ot_page_term *terms);

// ---- charts ----

// The terms of a step as one bar, with seconds and shares.
void ot_chart_terms(const ot_estimate *estimate, ot_text_builder *out);

// Memory of each stage, by class, against the capacity.
void ot_chart_memory(const ot_page_plan *plan, ot_text_builder *out);

// One step, a row for each stage. Long steps show their beginning and their end.
void ot_chart_timeline(const ot_candidate *candidate, const ot_replayed_step *step,
                       ot_text_builder *out);

// Terms of the step against the number of devices.
typedef struct ot_scaling_chart {
  const ot_scaling *scaling;
  int devices;  // of the job
  int64_t global_batch_size;
} ot_scaling_chart;
void ot_chart_scaling(const ot_scaling_chart *chart, ot_text_builder *out);

// The section of --compare: plan 1 and the other configurations, term by term.
void ot_html_compared(const ot_plan_page *page, ot_text_builder *out);

// <li> of a legend: a swatch of `class`, the name, and `text` (may be "").
void ot_chart_legend(ot_text_builder *out, const char *class, const char *name, const char *text);

// ---- tables: figures of the charts as text, and facts without a chart ----

void ot_html_plan_table(const ot_plan_page *page, ot_text_builder *out);
void ot_html_memory_table(const ot_page_plan *plan, ot_text_builder *out);
void ot_html_stage_table(const ot_page_plan *plan, ot_text_builder *out);
void ot_html_scaling_table(const ot_scaling *scaling, ot_text_builder *out);
void ot_html_model_totals(const ot_plan_page *page, ot_text_builder *out);
void ot_html_limits(const ot_plan_page *page, ot_text_builder *out);
void ot_html_search(const ot_plan_page *page, ot_text_builder *out);
