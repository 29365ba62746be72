// SPDX-License-Identifier: Apache-2.0
// Predictions as text and as JSON: figures of each group and source, next to those of other
// planners.
#pragma once

#include "base/text_builder.h"
#include "published_calibrate.h"

// Content of the report.
typedef struct ot_published_report {
  const ot_published_prices *prices;
  const ot_published_prices *left_out;        // published_left_out.h; omitted if it has no rows
  int calibrate;                              // rows of each source that calibrate; 0: none
  const ot_published_calibrated *calibrated;  // of runs never seen if those are known, else of all
} ot_published_report;

typedef struct ot_published_view {
  int worst;  // number of rows with the largest errors, 0 = none
  bool rows;  // one line per row
} ot_published_view;

// {"all":{"rows","mape","median","within10","source_macro","bias","between","within",
// "cover80","cover95","cover80_sources","width80"},"core":{...},
// "moe":{...},"cp":{...},"memory":{...},"sources":{NAME:{...}},"left_out":{"all":{...},...,
// "ranking":{...}},"calibrated":{"k",the
// groups},"ranking":{...},"unpriced":[id...],"beyond":[text...]}; in percent, except between and
// within (of logarithms). all = usable rows; core, moe and cp = subsets of them; memory = peak
// memory of rows that measured it; figures of an empty group are null. beyond: usable rows that the
// planner does not list as published (advise/explain_beyond.c); they must be added there.
const char *ot_published_json(const ot_published_report *report, ot_arena *arena);

void ot_published_print(const ot_published_report *report, const ot_published_view *view,
                        ot_text_builder *out);
