// SPDX-License-Identifier: Apache-2.0
#include "answer/plan_cost.h"

#include "base/quantity.h"

ot_plan_cost ot_plan_cost_of(const ot_plan_page *page, const ot_page_plan *plan) {
  const double step_s = plan->estimate->step_s;
  const double productive = page->goodput ? page->goodput->productive : 1;
  const double elapsed_h = (double)page->steps * step_s / productive / OT_HOUR_S;
  const double device_hours = elapsed_h * ot_job_all_devices(page->job);
  return (ot_plan_cost){.device_hours = device_hours,
                        .dollars = device_hours * page->price,
                        .kwh = device_hours * ot_cluster_mean_power(page->job->cluster) / 1e3};
}

const char *ot_figure_dollars(ot_arena *arena, double dollars) {
  if (dollars < 1000) return ot_arena_format(arena, "$%.2f", dollars);
  return ot_arena_format(arena, "$%s", ot_figure_count(arena, dollars));
}

const char *ot_figure_kwh(ot_arena *arena, double kwh) {
  if (kwh < 1e3) return ot_arena_format(arena, "%.3g kWh", kwh);
  if (kwh < 1e6) return ot_arena_format(arena, "%.3g MWh", kwh / 1e3);
  return ot_arena_format(arena, "%.3g GWh", kwh / 1e6);
}

const char *ot_plan_cost_text(const ot_plan_page *page, const ot_page_plan *plan, ot_arena *arena) {
  const ot_plan_cost cost = ot_plan_cost_of(page, plan);
  const ot_interval range = ot_interval_80(cost.dollars, plan->doubt.step_variance);
  return ot_arena_format(arena, "%s at %s a device hour: %s device hours; %s to %s in 4 of 5 cases",
                         ot_figure_dollars(arena, cost.dollars),
                         ot_figure_dollars(arena, page->price),
                         ot_figure_count(arena, cost.device_hours),
                         ot_figure_dollars(arena, range.low), ot_figure_dollars(arena, range.high));
}
