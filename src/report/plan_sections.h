// SPDX-License-Identifier: Apache-2.0
// A plan as sections of RUN.yaml.
#pragma once

#include "base/tree.h"
#include "report/plan_page.h"

// model, parallel, batch and precision of a run of `candidate`, as a map that RUN.yaml can begin
// with. Lives in `arena`.
ot_node *ot_plan_sections(const ot_plan_page *page, const ot_candidate *candidate, ot_arena *arena);
