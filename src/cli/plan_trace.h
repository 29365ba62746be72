// SPDX-License-Identifier: Apache-2.0
// The predicted step of a plan as a Chrome trace.
#pragma once

#include "report/plan_page.h"

// Writes the timelines of the first rank of each stage of the first plan of `page` to `path`. The
// schedules are built as training builds them; the job must be one of engine orthant.
ot_status ot_plan_trace_write(const ot_plan_page *page, const char *path);
