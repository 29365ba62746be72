// SPDX-License-Identifier: Apache-2.0
// A page as one JSON document (interface: plan, JSON).
#pragma once

#include "report/plan_page.h"

// The document, in `arena`.
const char *ot_plan_json(const ot_plan_page *page, ot_arena *arena);
