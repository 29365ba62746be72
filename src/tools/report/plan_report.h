// SPDX-License-Identifier: Apache-2.0
// A plan for people: as text, as an HTML page and as a trace.
#pragma once

#include "answer/plan_page.h"

// How the text is printed.
typedef struct ot_report_form {
  bool bold;   // headings and plan 1 are bold, for terminals
  bool brief;  // the job, the table of plans and what they rest on alone
  int rows;    // most plans in the table of a brief report
} ot_report_form;

// As text, at most 100 columns wide: job, table of plans and what they rest on, reasons, state and
// work, limits.
void ot_plan_report(const ot_plan_page *page, const ot_report_form *form, ot_text_builder *out);

// As one self-contained HTML file: no network, no scripts; style and drawings are inline. Prices
// the best plan on other numbers of devices, and replays its step. OT_USAGE as ot_estimator_build.
ot_status ot_plan_html(const ot_plan_page *page, ot_text_builder *out);

// Replays `candidate` of the estimator's job and writes it to `path` as a Chrome trace, for
// frameworks without schedules: one bar per pipeline action of the first rank of each stage, with
// pid, tid and categories as in the traces of schedules.
ot_status ot_predicted_trace_write(ot_estimator *estimator, const ot_candidate *candidate,
                                   const char *path);
