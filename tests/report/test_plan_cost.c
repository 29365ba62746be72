// SPDX-License-Identifier: Apache-2.0
// run: any machine. The cost of a run against values computed by hand.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "answer/plan_cost.h"
#include "host/heap.h"

// 3,600 steps of 10 s on 64 devices at $2 an hour.
typedef struct cost_case {
  ot_cluster cluster;
  ot_job job;
  ot_goodput goodput;
  ot_estimate estimate;
  ot_page_plan plan;
  ot_plan_page page;
} cost_case;

static void build(cost_case *c) {
  *c = (cost_case){.job = {.devices = 64}, .estimate = {.step_s = 10}};
  c->job.cluster = &c->cluster;
  c->plan.estimate = &c->estimate;
  c->page = (ot_plan_page){.job = &c->job, .steps = 3600, .price = 2};
}

static void close_to(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-12 * fabs(expected));
}

static void ten_hours_cost_640_device_hours(void **state) {
  (void)state;
  cost_case c;
  build(&c);
  const ot_plan_cost cost = ot_plan_cost_of(&c.page, &c.plan);
  close_to(cost.device_hours, 640);
  close_to(cost.dollars, 1280);
  assert_true(cost.kwh == 0);
}

static void failures_are_paid_for(void **state) {
  (void)state;
  cost_case c;
  build(&c);
  c.goodput.productive = 0.8;
  c.page.goodput = &c.goodput;
  close_to(ot_plan_cost_of(&c.page, &c.plan).device_hours, 800);
  close_to(ot_plan_cost_of(&c.page, &c.plan).dollars, 1600);
}

static void energy_is_that_of_the_limit(void **state) {
  (void)state;
  cost_case c;
  build(&c);
  c.cluster.device.power_w = 700;
  close_to(ot_plan_cost_of(&c.page, &c.plan).kwh, 448);
  c.cluster.device.power_share = 0.5;
  close_to(ot_plan_cost_of(&c.page, &c.plan).kwh, 224);
}

static void figures_have_units(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  assert_string_equal(ot_figure_dollars(&arena, 2.5), "$2.50");
  assert_string_equal(ot_figure_dollars(&arena, 24800), "$24.8k");
  assert_string_equal(ot_figure_kwh(&arena, 448), "448 kWh");
  assert_string_equal(ot_figure_kwh(&arena, 2791), "2.79 MWh");
  assert_string_equal(ot_figure_kwh(&arena, 21.6e6), "21.6 GWh");
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ten_hours_cost_640_device_hours),
      cmocka_unit_test(failures_are_paid_for),
      cmocka_unit_test(energy_is_that_of_the_limit),
      cmocka_unit_test(figures_have_units),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
