// SPDX-License-Identifier: Apache-2.0
// run: any machine. The summary table of a run: means of the added values, by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/heap.h"
#include "record/step_means.h"

static ot_step_figures figures(double step_s, double pp_s, double bubble) {
  ot_step_figures f = {.step_s = step_s, .bubble_fraction = bubble};
  f.exposed_axis_s[OT_TIMELINE_PP] = pp_s;
  return f;
}

static void expect(const ot_step_means *means, int ranks, const char *text) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const printed = ot_step_means_print(means, ranks, &arena);
  if (text) {
    assert_non_null(printed);
    assert_string_equal(printed, text);
  } else {
    assert_null(printed);
  }
  ot_heap_release(&heap);
}

static void means_leave_out_the_first_step(void **state) {
  (void)state;
  const ot_step_figures first = figures(9, 5, 0.9), plan = figures(0.25, 0.015, 0.125);
  const ot_step_figures second = figures(0.25, 0.01, 0.25), third = figures(0.75, 0.03, 0.5);
  ot_step_means means = {0};
  ot_step_means_add(&means, &first, &plan);
  expect(&means, 2, NULL);
  ot_step_means_add(&means, &second, &plan);
  ot_step_means_add(&means, &third, &plan);
  expect(&means, 2,
         "mean of 2        measured    predicted\n"
         "  step              500.00 ms    250.00 ms\n"
         "  exposed pp         20.00 ms     15.00 ms\n"
         "  bubble             37.50 %      12.50 %");
}

static void kernels_are_listed_by_part_on_one_rank_too(void **state) {
  (void)state;
  ot_step_figures step = figures(0.5, 0, 0), plan = figures(0.4, 0, 0);
  step.part_s[OT_TIMELINE_FORWARD] = 0.125;
  step.part_s[OT_TIMELINE_BACKWARD] = 0.25;
  step.part_s[OT_TIMELINE_UPDATE] = 0.0625;
  plan.part_s[OT_TIMELINE_FORWARD] = 0.1;
  plan.part_s[OT_TIMELINE_BACKWARD] = 0.2;
  plan.part_s[OT_TIMELINE_UPDATE] = 0.05;
  ot_step_means means = {0};
  ot_step_means_add(&means, &step, &plan);
  ot_step_means_add(&means, &step, &plan);
  expect(&means, 1,
         "mean of 1        measured    predicted\n"
         "  step              500.00 ms    400.00 ms\n"
         "  forward           125.00 ms    100.00 ms\n"
         "  backward          250.00 ms    200.00 ms\n"
         "  update             62.50 ms     50.00 ms");
}

static void unknown_values_are_not_printed(void **state) {
  (void)state;
  const ot_step_figures step = figures(0.5, 0, 0);
  ot_step_means means = {0};
  ot_step_means_add(&means, &step, NULL);
  ot_step_means_add(&means, &step, NULL);
  expect(&means, 1, NULL);
  expect(&means, 2, "mean of 1        measured\n  step              500.00 ms");
  ot_step_means_add(&means, &step, &step);
  expect(&means, 1,
         "mean of 2        measured    predicted\n  step              500.00 ms    500.00 ms");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(means_leave_out_the_first_step),
      cmocka_unit_test(kernels_are_listed_by_part_on_one_rank_too),
      cmocka_unit_test(unknown_values_are_not_printed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
