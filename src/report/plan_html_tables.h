// SPDX-License-Identifier: Apache-2.0
// The tables of a plan's page: figures of the charts for those who want or need them as text, and
// the facts that no chart shows.
#pragma once

#include "base/text_builder.h"
#include "plan/scaling_curve.h"
#include "report/plan_page.h"

void ot_html_plan_table(const ot_plan_page *page, ot_text_builder *out);
void ot_html_memory_table(const ot_page_plan *plan, ot_text_builder *out);
void ot_html_stage_table(const ot_page_plan *plan, ot_text_builder *out);
void ot_html_scaling_table(const ot_scaling *scaling, ot_text_builder *out);
void ot_html_bill(const ot_plan_page *page, ot_text_builder *out);
void ot_html_limits(const ot_plan_page *page, ot_text_builder *out);
void ot_html_search(const ot_plan_page *page, ot_text_builder *out);
