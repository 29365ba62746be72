// SPDX-License-Identifier: Apache-2.0
// A page as text for people, at most 100 columns wide.
#pragma once

#include "base/text_builder.h"
#include "report/plan_page.h"

// Appends the page: what was asked, bill, limits, table of plans, why.
void ot_plan_report(const ot_plan_page *page, ot_text_builder *out);
