// SPDX-License-Identifier: Apache-2.0
// run: any machine. Steps between checkpoints, against Daly's formula worked out by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "state/save_interval.h"

typedef struct interval_row {
  ot_save_times times;
  int64_t steps;
} interval_row;

// M = 10000 s, d = 10 s: sqrt(2 d M) = 447.214, sqrt(d / 2M) / 3 = 0.00745356, d / 18M
// = 5.55556e-5, so 447.214 * 1.00750911 - 10 = 440.572 s.
static const interval_row rows[] = {
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 10, .step_s = 1}, 441},
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 10, .step_s = 0.5}, 881},
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 10, .step_s = 100}, 4},
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 10, .step_s = 1000}, 1},
    // 1414.214 * (1 + 0.0235702 + 0.000555556) - 100 = 1348.33 s
    {{.mtbf_s = 10000, .blocked_s = 100, .save_s = 100, .step_s = 1}, 1348},
    // A write while training goes on: the next save begins when it has ended.
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 450, .step_s = 1}, 441},
    {{.mtbf_s = 10000, .blocked_s = 10, .save_s = 910, .step_s = 1}, 900},
    // Saves that take longer than a job lives: d >= 2 M gives M.
    {{.mtbf_s = 50, .blocked_s = 100, .save_s = 100, .step_s = 1}, 50},
    {{.mtbf_s = 1e-9, .blocked_s = 100, .save_s = 100, .step_s = 1}, 1},
    // Below the resolution of clocks: sqrt(2 * 1e-9 * 3.6e12); and beyond any run.
    {{.mtbf_s = 3.6e12, .blocked_s = 0, .save_s = 0, .step_s = 1}, 85},
    {{.mtbf_s = 3.6e12, .blocked_s = 1e300, .save_s = 1e300, .step_s = 0}, 1000000000000000},
};

static void intervals_are_those_of_the_formula(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const int64_t steps = ot_save_interval_steps(&rows[i].times);
    if (steps != rows[i].steps)
      fail_msg("row %d: %lld steps, not %lld", i, (long long)steps, (long long)rows[i].steps);
  }
}

// 54 days * 16384 devices / 419 failures = 50677.0 h.
static void failures_are_given_or_those_of_so_many_devices(void **state) {
  (void)state;
  const ot_run_checkpoint unknown = {0}, given = {.mtbf_hours = 2.5};
  assert_float_equal(ot_save_interval_mtbf(&unknown, 1) / 3600, 50677.0, 0.1);
  assert_float_equal(ot_save_interval_mtbf(&unknown, 16384) / 3600, 3.0931, 0.0001);
  assert_float_equal(ot_save_interval_mtbf(&given, 16384), 9000, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(intervals_are_those_of_the_formula),
      cmocka_unit_test(failures_are_given_or_those_of_so_many_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
