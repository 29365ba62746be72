// SPDX-License-Identifier: Apache-2.0
// run: alone. The status line: complete, with unknown parts, and truncated to the terminal width.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/quantity.h"
#include "record/status_line.h"

static const ot_status_line usual = {.step = 1200,
                                     .num_steps = 9536,
                                     .loss_nats = 3.2141,
                                     .gradient_norm = 0.81,
                                     .tokens_per_s = 412345,
                                     .mfu = 0.412,
                                     .planned_mfu = 0.43,
                                     .memory_peak_bytes = 61320373811,
                                     .memory_capacity_bytes = 80000000000,
                                     .remaining_s = 11520,
                                     .learning_rate = 2.871e-4,
                                     .step_s = 1.2718};

static void expect_line(const ot_status_line *status, int columns, const char *expected) {
  char line[256];
  const int64_t length = ot_status_line_print(line, sizeof line, status, columns);
  assert_string_equal(line, expected);
  assert_int_equal(line[length], 0);
}

static void prints_the_line_of_the_contract(void **state) {
  (void)state;
  expect_line(&usual, 0,
              "step 1200/9536 12.6%  loss 3.214  gnorm 0.81  412k tok/s  eta 3h12m  "
              "MFU 41.2% (plan 43.0%)  peak 61.3/80 GB of GPU  lr 0.000287  1.27 s/step");
}

static void leaves_out_what_is_unknown(void **state) {
  (void)state;
  ot_status_line status = usual;
  status.num_steps = -1;
  status.gradient_norm = status.planned_mfu = status.remaining_s = NAN;
  status.learning_rate = NAN;
  status.step_s = 0.01234;
  status.memory_capacity_bytes = -1;
  status.memory_peak_bytes = 327155712;
  expect_line(&status, 0,
              "step 1200  loss 3.214  412k tok/s  MFU 41.2%  peak 327.2 MB resident  12.3 ms/step");
  status.step_s = status.mfu = status.loss_nats = status.tokens_per_s = NAN;
  status.memory_peak_bytes = -1;
  expect_line(&status, 0, "step 1200");
}

static void leaves_out_parts_that_do_not_fit(void **state) {
  (void)state;
  expect_line(&usual, 118,
              "step 1200/9536 12.6%  loss 3.214  gnorm 0.81  412k tok/s  eta 3h12m  "
              "MFU 41.2% (plan 43.0%)  peak 61.3/80 GB of GPU");
  expect_line(&usual, 80,
              "step 1200/9536 12.6%  loss 3.214  gnorm 0.81  412k tok/s  eta 3h12m  lr 0.000287");
  expect_line(&usual, 50, "step 1200/9536 12.6%  loss 3.214  gnorm 0.81");
  expect_line(&usual, 31, "step 1200/9536 12.6%  eta 3h12m");
  expect_line(&usual, 32, "step 1200/9536 12.6%  loss 3.214");
}

static void prints_durations(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0s"},         {59.4, "59s"},     {59.6, "1m00s"},  {754, "12m34s"},
               {3599.7, "1h00m"}, {86399, "23h59m"}, {86400, "1d00h"}, {1e7, "115d17h"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[32];
    ot_duration_print(text, sizeof text, cases[i].seconds);
    assert_string_equal(text, cases[i].text);
  }
}

static void prints_times_of_steps(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{4.2e-5, "0.042 ms"}, {0.0123, "12.3 ms"}, {1.27, "1.27 s"}, {75, "1m15s"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[32];
    ot_seconds_print(text, sizeof text, cases[i].seconds);
    assert_string_equal(text, cases[i].text);
  }
}

static void prints_rates_with_three_digits(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0"},        {987.4, "987"},   {999.4, "999"},    {999.6, "1.00k"},
               {1234, "1.23k"}, {9994, "9.99k"},  {9996, "10.0k"},   {99940, "99.9k"},
               {99960, "100k"}, {999400, "999k"}, {999600, "1.00M"}, {2.5e9, "2.50G"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[32];
    ot_rate_print(text, sizeof text, cases[i].value);
    assert_string_equal(text, cases[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_the_line_of_the_contract),
      cmocka_unit_test(leaves_out_what_is_unknown),
      cmocka_unit_test(leaves_out_parts_that_do_not_fit),
      cmocka_unit_test(prints_durations),
      cmocka_unit_test(prints_times_of_steps),
      cmocka_unit_test(prints_rates_with_three_digits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
