// SPDX-License-Identifier: Apache-2.0
// Prices of rows as text and as JSON: figures of each group and source, beside those of the peers.
#pragma once

#include "base/text_builder.h"
#include "published_price.h"

// What is reported.
typedef struct ot_published_report {
  const ot_published_prices *prices;
  const ot_published_prices *left_out;  // published_left_out.h; without rows: not reported
} ot_published_report;

typedef struct ot_published_view {
  int worst;  // rows with the largest errors, 0 = none
  bool rows;  // one line for each row
} ot_published_view;

// {"all":{"rows","mape","median","within10","source_macro","bias"},"core":{...},"moe":{...},
//  "cp":{...},"memory":{...},"sources":{NAME:{...}},"left_out":{...},"ranking":{...},
//  "unpriced":[id...],"beyond":[text...]}; all in percent. all = usable rows; core, moe and cp =
//  those of them that are so; memory = peak memory of rows where it is measured; figures of an
//  empty group are null. beyond: usable rows that are outside what the planner calls published
//  (plan/explain_beyond.c), which are to be added there.
const char *ot_published_json(const ot_published_report *report, ot_arena *arena);

void ot_published_print(const ot_published_report *report, const ot_published_view *view,
                        ot_text_builder *out);
