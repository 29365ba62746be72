// SPDX-License-Identifier: Apache-2.0
// A plan for people: as text, as an HTML page and as a trace.
#pragma once

#include "answer/plan_page.h"

// As text, at most 100 columns wide: job, state and work, limits, table of plans, reasons.
void ot_plan_report(const ot_plan_page *page, ot_text_builder *out);

// As one self-contained HTML file: no network, no scripts; style and drawings are inline. Prices
// the best plan on other numbers of devices, and replays its step. OT_USAGE as ot_estimator_build.
ot_status ot_plan_html(const ot_plan_page *page, ot_text_builder *out);

// Replays `candidate` of the estimator's job and writes it to `path` as a Chrome trace, for
// frameworks without schedules: one bar per pipeline action of the first rank of each stage, with
// pid, tid and categories as in the traces of schedules.
ot_status ot_predicted_trace_write(ot_estimator *estimator, const ot_candidate *candidate,
                                   const char *path);
