// SPDX-License-Identifier: Apache-2.0
// The rejections of a search that need no bound. Private to the planner.
#pragma once

#include "search/search.h"
#include "search/space.h"

// Adds the parts that the rules reject to the rejections of `out`, which has space for them. Texts
// are in `arena`.
void ot_rejections_add_rules(const ot_space *space, ot_arena *arena, ot_search *out);

// None of the candidates that a memory bound rejected can be built: rules reject all. The first
// rejection is then one of these. `told`: the number of rejections before them.
void ot_rejections_refuse_all(int told, ot_search *out);
