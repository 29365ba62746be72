// SPDX-License-Identifier: Apache-2.0
// run: any machine. Calibration by measured steps: limits that follow from its formula.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/calibrate.h"

static const double COMPUTE = 0.092, NOISE = 0.090;

static ot_calibration find(ot_calibrating_row *rows, int count) {
  ot_calibration out;
  ot_calibration_find(rows, count, &out);
  return out;
}

static void steps_as_predicted_change_nothing(void **state) {
  (void)state;
  ot_calibrating_row rows[] = {{.log_ratio = 0, .exposed = 0.1}, {.log_ratio = 0, .exposed = 0.5}};
  const ot_calibration c = find(rows, 2);
  assert_true(fabs(c.compute - 1) < 1e-12 && fabs(c.exposed - 1) < 1e-12);
}

// A step without exposed communication is given back shrunk; many give themselves back.
static void one_step_is_shrunk_and_many_are_believed(void **state) {
  (void)state;
  ot_calibrating_row rows[OT_MOST_CALIBRATING];
  for (int i = 0; i < OT_MOST_CALIBRATING; i++) rows[i] = (ot_calibrating_row){.log_ratio = 0.05};
  const double one = log(find(rows, 1).compute);
  const double weight = rows[0].weight * COMPUTE * COMPUTE;
  assert_true(fabs(one - 0.05 * weight / (weight + NOISE * NOISE)) < 1e-3);
  const double many = log(find(rows, OT_MOST_CALIBRATING).compute);
  assert_true(one > 0.02 && one < 0.03 && many > 0.048 && many < 0.05);
}

static void exposed_communication_is_told_from_computation(void **state) {
  (void)state;
  ot_calibrating_row rows[8];
  for (int i = 0; i < 8; i++) {
    const double x = i % 2 == 0 ? 0 : 0.5;
    rows[i] = (ot_calibrating_row){.log_ratio = 0.4 * x, .exposed = x};
  }
  const ot_calibration c = find(rows, 8);
  assert_true(fabs(log(c.compute)) < 0.02 && log(c.exposed) > 0.3 && log(c.exposed) < 0.41);
}

static void a_row_that_contradicts_the_others_is_named(void **state) {
  (void)state;
  ot_calibrating_row rows[6];
  for (int i = 0; i < 6; i++) rows[i] = (ot_calibrating_row){.log_ratio = 0.1, .exposed = 0.1};
  rows[4].log_ratio = -0.5;
  const ot_calibration c = find(rows, 6);
  for (int i = 0; i < 6; i++) assert_int_equal(rows[i].contradicts, i == 4);
  assert_true(log(c.compute) > 0.05 && log(c.compute) < 0.1);
}

static void the_cluster_gets_the_rates_that_the_factors_imply(void **state) {
  (void)state;
  ot_cluster cluster = {.device = {.matrix_efficiency = 0.7,
                                   .memory_efficiency = 0.6,
                                   .attention_efficiency = 0.4,
                                   .attention_2_efficiency = 0.3},
                        .level = {{.efficiency = 0.9}, {.efficiency = 0}},
                        .num_levels = 2};
  const ot_calibration slower = {.compute = 1.25, .exposed = 2};
  ot_calibration_apply(&slower, &cluster);
  assert_true(fabs(cluster.device.matrix_efficiency - 0.56) < 1e-12);
  assert_true(fabs(cluster.device.memory_efficiency - 0.48) < 1e-12);
  assert_true(fabs(cluster.device.attention_2_efficiency - 0.24) < 1e-12);
  assert_true(cluster.device.attention_1_efficiency == 0);
  assert_true(cluster.level[0].efficiency == 0.45 && cluster.level[1].efficiency == 0.5);
  const ot_calibration faster = {.compute = 0.5, .exposed = 0.1};
  ot_calibration_apply(&faster, &cluster);
  assert_true(cluster.device.matrix_efficiency == 1 && cluster.level[0].efficiency == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_as_predicted_change_nothing),
      cmocka_unit_test(one_step_is_shrunk_and_many_are_believed),
      cmocka_unit_test(exposed_communication_is_told_from_computation),
      cmocka_unit_test(a_row_that_contradicts_the_others_is_named),
      cmocka_unit_test(the_cluster_gets_the_rates_that_the_factors_imply),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
