// SPDX-License-Identifier: Apache-2.0
// A judged step as a page: verdict, what was compared, findings, the error of every tensor as a map
// of layers and kinds, and the smallest faults that would have shown. Texts of a record are
// untrusted, and escaped.
#pragma once

#include "base/text_builder.h"
#include "judge/judge_pair.h"

// `record`: its path.
void ot_judge_html(const ot_judge_report *report, const char *record, ot_text_builder *out);
void ot_judged_pair_html(const ot_judged_pair *pair, ot_text_builder *out);

// ---- charts of the page ----

// A row for each layer, a column for each kind of tensor, and below tensors outside of layers. A
// cell has the largest error of its tensors.
void ot_chart_judged_tensors(const ot_judge_report *report, const char *label,
                             ot_text_builder *out);

// The smallest fault of each class that would have shown.
void ot_chart_sensitivities(const ot_judge_report *report, ot_text_builder *out);

// An error in own errors: "0.93", "51", "1.37M", "not finite".
const char *ot_judged_ratio_text(ot_arena *arena, double ratio);
