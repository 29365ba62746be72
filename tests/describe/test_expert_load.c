// SPDX-License-Identifier: Apache-2.0
// run: any machine. Rows of overflow passes, against loads that are listed one by one.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/expert_load.h"

enum { LOADS = 200000 };

typedef struct overflow {
  double passes, rows;  // after the first pass: per micro-batch, and in each of them
} overflow;

// Of loads whose excess over an even share is exponentially distributed with mean `excess`.
static overflow count(double buffer, double excess) {
  overflow sum = {0, 0};
  for (int i = 0; i < LOADS; i++) {
    const double load = 1 - excess * log((i + 0.5) / LOADS);
    sum.passes += fmax(0, ceil(load / buffer) - 1) / LOADS;
    sum.rows += fmax(0, load - buffer) / LOADS;
  }
  sum.rows /= sum.passes;
  return sum;
}

static void rows_of_overflow_follow_from_their_number(void **state) {
  (void)state;
  static const double buffers[] = {1, 1.25, 2}, excess[] = {0.1, 0.3, 1, 4};
  int tried = 0;
  for (int b = 0; b < 3; b++) {
    for (int e = 0; e < 4; e++) {
      const overflow counted = count(buffers[b], excess[e]);
      // Too few to count; and in buffers of an even share every load overflows.
      if (counted.passes < 0.01 || (buffers[b] == 1 && counted.passes < 1.01)) continue;
      tried++;
      const double rows = ot_expert_overflow_rows(buffers[b], counted.passes);
      assert_true(fabs(rows / counted.rows - 1) < 0.01);
    }
  }
  assert_int_equal(tried, 10);
}

static void few_passes_are_nearly_empty_and_many_nearly_full(void **state) {
  (void)state;
  double last = 0;
  for (double more = 1e-3; more < 1e3; more *= 2) {
    const double rows = ot_expert_overflow_rows(1.25, more);
    assert_true(rows > last && rows < 1.25);
    last = rows;
  }
  assert_true(ot_expert_overflow_rows(1.25, 1e-3) < 0.05 && last > 1.24);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_overflow_follow_from_their_number),
      cmocka_unit_test(few_passes_are_nearly_empty_and_many_nearly_full),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
