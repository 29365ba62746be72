// SPDX-License-Identifier: Apache-2.0
// The cost of the whole run: device hours, dollars, energy. Pure.
#pragma once

#include "answer/plan_page.h"

typedef struct ot_plan_cost {
  double device_hours;  // failures and checkpoints included, where they are modelled
  double dollars;       // at page->price
  double kwh;           // of the devices alone at their power limit; 0: their power is not known
} ot_plan_cost;

// The cost of the run with `plan`. All plans have the goodput of the best one.
ot_plan_cost ot_plan_cost_of(const ot_plan_page *page, const ot_page_plan *plan);

// "$24.8k"
const char *ot_figure_dollars(ot_arena *arena, double dollars);

// "6.96 MWh"
const char *ot_figure_kwh(ot_arena *arena, double kwh);

// "$24.8k at $2.50 a device hour: 9.94k device hours; $19.6k to $31.3k in 4 of 5 cases"
const char *ot_plan_cost_text(const ot_plan_page *page, const ot_page_plan *plan, ot_arena *arena);
