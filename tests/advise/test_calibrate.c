// SPDX-License-Identifier: Apache-2.0
// run: any machine. Calibration by measured steps: limits that follow from its formula.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/calibrate.h"

// A row whose configuration is `far` from others, with exposed share `x`.
static ot_calibrating_row row_of(double log_ratio, double x, double far) {
  return (ot_calibrating_row){.log_ratio = log_ratio,
                              .traits = {.at = {far}, .exposed = x, .device = "h100"}};
}

static ot_calibration find(const ot_calibrating_row *rows, int count) {
  ot_calibration out = {.count = count};
  for (int i = 0; i < count; i++) out.rows[i] = rows[i];
  ot_calibration_find(&out);
  return out;
}

// ln of all that a configuration is corrected by.
static double logarithm_at(const ot_calibration *c, double x, double far) {
  const ot_traits at = {.at = {far}, .exposed = x, .device = "h100"};
  return (1 - x) * log(c->compute) + x * log(c->exposed) +
         log(ot_calibration_correction(c, &at).factor);
}

static void steps_as_predicted_change_nothing(void **state) {
  (void)state;
  const ot_calibrating_row rows[] = {row_of(0, 0.1, 0), row_of(0, 0.5, 1)};
  const ot_calibration c = find(rows, 2);
  assert_true(fabs(c.compute - 1) < 1e-12 && fabs(c.exposed - 1) < 1e-12);
  assert_true(fabs(logarithm_at(&c, 0.3, 0.5)) < 1e-12);
}

// One step is given back shrunk by k / (k + noise); many give themselves back.
static void one_step_is_shrunk_and_many_are_believed(void **state) {
  (void)state;
  ot_calibrating_row rows[OT_MOST_CALIBRATING];
  for (int i = 0; i < OT_MOST_CALIBRATING; i++) rows[i] = row_of(0.05, 0, 0);
  const ot_covariance k = ot_traits_covariance(&rows[0].traits, &rows[0].traits);
  const ot_calibration one = find(rows, 1), many = find(rows, OT_MOST_CALIBRATING);
  const double sum = ot_covariance_sum(&k);
  const double expected = 0.05 * sum / (sum + ot_doubt_noise / one.rows[0].weight);
  assert_true(fabs(logarithm_at(&one, 0, 0) - expected) < 1e-3);
  assert_true(logarithm_at(&many, 0, 0) > 0.049 && logarithm_at(&many, 0, 0) < 0.05);
}

// What is measured near by counts for more, and leaves less uncertain.
static void alike_configurations_are_corrected_more(void **state) {
  (void)state;
  const ot_calibrating_row rows[] = {row_of(0.2, 0, 0)};
  const ot_calibration c = find(rows, 1);
  const double here = logarithm_at(&c, 0, 0), near = logarithm_at(&c, 0, 1);
  const double far = logarithm_at(&c, 0, 9);
  assert_true(here > near && near > far && far > 0);
  assert_true(fabs(far - log(c.compute)) < 1e-12);
  const ot_traits at[] = {{.device = "h100"}, {.at = {9}, .device = "h100"}};
  assert_true(ot_calibration_correction(&c, &at[0]).variance <
              ot_calibration_correction(&c, &at[1]).variance);
  assert_true(ot_calibration_of_steps(&c).least == 1);
  const ot_calibrating_row faster[] = {row_of(-0.2, 0, 0)};
  const ot_calibration quick = find(faster, 1);
  assert_true(ot_calibration_of_steps(&quick).least <=
              ot_calibration_correction(&quick, &at[0]).factor + 1e-15);
}

// The variance of a prediction without a measurement near it is that which was claimed.
static void variances_are_those_of_the_predictions(void **state) {
  (void)state;
  ot_calibrating_row rows[] = {row_of(0.1, 0, 0)};
  rows[0].variance = 0.09;
  const ot_calibration c = find(rows, 1);
  const ot_traits far = {.at = {9}, .device = "h100"};
  const double left = ot_calibration_correction(&c, &far).variance;
  assert_true(left < 0.09 && left > 0.06);
}

static void exposed_communication_is_told_from_computation(void **state) {
  (void)state;
  ot_calibrating_row rows[8];
  for (int i = 0; i < 8; i++) {
    const double x = i % 2 == 0 ? 0 : 0.5;
    rows[i] = row_of(0.4 * x, x, 3 * i);
  }
  const ot_calibration c = find(rows, 8);
  assert_true(fabs(log(c.compute)) < 0.03);
  assert_true(log(c.exposed) > 0.1 && log(c.exposed) < 0.41);
}

static void a_row_that_contradicts_the_others_is_named(void **state) {
  (void)state;
  ot_calibrating_row rows[6];
  for (int i = 0; i < 6; i++) rows[i] = row_of(0.1, 0.1, 0);
  rows[4].log_ratio = -0.5;
  const ot_calibration c = find(rows, 6);
  for (int i = 0; i < 6; i++) assert_int_equal(c.rows[i].contradicts, i == 4);
  assert_true(logarithm_at(&c, 0.1, 0) > 0.04 && logarithm_at(&c, 0.1, 0) < 0.1);
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
      cmocka_unit_test(alike_configurations_are_corrected_more),
      cmocka_unit_test(variances_are_those_of_the_predictions),
      cmocka_unit_test(exposed_communication_is_told_from_computation),
      cmocka_unit_test(a_row_that_contradicts_the_others_is_named),
      cmocka_unit_test(the_cluster_gets_the_rates_that_the_factors_imply),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
