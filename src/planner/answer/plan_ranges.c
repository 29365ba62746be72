// SPDX-License-Identifier: Apache-2.0
// Intervals of a plan's step and memory as text.
#include "answer/plan_page.h"
#include "base/quantity.h"

const char *ot_page_step_range(const ot_page_plan *plan, ot_arena *arena) {
  const ot_interval i = ot_interval_80(plan->estimate->step_s, plan->doubt.step_variance);
  return ot_arena_format(arena, "%s to %s", ot_figure_seconds(arena, i.low),
                         ot_figure_seconds(arena, i.high));
}

const char *ot_page_memory_range(const ot_page_plan *plan, ot_arena *arena) {
  const ot_memory_estimate *const m = &plan->estimate->memory;
  const ot_interval i =
      ot_interval_80((double)(m->reserved + m->context), plan->doubt.memory_variance);
  return ot_arena_format(arena, "%s to %s", ot_figure_bytes(arena, i.low),
                         ot_figure_bytes(arena, i.high));
}
