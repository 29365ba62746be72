// SPDX-License-Identifier: Apache-2.0
// The parts of a report's text and of its JSON, which reports of one and of two records share.
// Private to judge/.
#pragma once

#include "base/text_builder.h"
#include "judge/judge_report.h"

// Lines, each ended: what was found; the sensitivity and the verdict.
void ot_judge_report_put_findings(const ot_judge_report *report, ot_text_builder *out);
void ot_judge_report_put_verdict(const ot_judge_report *report, ot_text_builder *out);

// The members of the object that `json` is in.
void ot_judge_report_write(const ot_judge_report *report, ot_json_writer *json);
// One more: the list of tensors with their errors.
void ot_judge_report_write_tensors(const ot_judge_report *report, ot_json_writer *json);
