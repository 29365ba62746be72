// SPDX-License-Identifier: Apache-2.0
// A page as one HTML file that needs nothing else: no network, no scripts; style and drawings are
// inside.
#pragma once

#include "base/text_builder.h"
#include "report/plan_page.h"

// Appends the whole document. Prices the best plan again on other numbers of devices, and plays its
// step. OT_USAGE as ot_estimator_build.
ot_status ot_plan_html(const ot_plan_page *page, ot_text_builder *out);
