// SPDX-License-Identifier: Apache-2.0
// run: any machine. Of several rounds of steps the fastest count, and what is joined keeps its
// number of runs, sum and quartile.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/heap.h"
#include "measure/measure_parts.h"
#include "measure/task_timings.h"

static void keeps_a_fifth_of_rounds(void **state) {
  (void)state;
  const double rounds[] = {5, 1.5, 4, 2.5, 3, 9, 8, 7, 6, 11};
  int fastest[10];
  assert_int_equal(ot_timings_fastest(rounds, 10, fastest), 2);
  assert_int_equal(fastest[0], 1);
  assert_int_equal(fastest[1], 3);
  assert_float_equal(ot_timings_fast_mean(rounds, 10), 2, 1e-12);
}

static void keeps_one_of_few_rounds(void **state) {
  (void)state;
  const double rounds[] = {3, 2, 4};
  int fastest[3];
  assert_int_equal(ot_timings_fastest(rounds, 3, fastest), 1);
  assert_int_equal(fastest[0], 1);
  assert_int_equal(ot_timings_fastest(rounds, 0, fastest), 0);
}

static ot_task_timing row_of(ot_op_kind op, double flops, ot_timings *runs) {
  return (ot_task_timing){.op = op, .terms = {[OT_KERNEL_MATRIX] = flops}, .runs = runs};
}

static void joins_rows_of_equal_work(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_timings a = {0}, b = {0};
  for (int i = 1; i <= 3; i++) ot_timings_add(&a, i);
  for (int i = 0; i < OT_TIMINGS_MOST; i++) ot_timings_add(&b, 10);
  ot_task_timing rows[] = {row_of(OT_OP_LINEAR, 8, &a), row_of(OT_OP_LINEAR, 9, &b),
                           row_of(OT_OP_LINEAR, 8, &b)};
  ot_task_timings out = {.arena = &arena};
  for (int i = 0; i < 3; i++) {
    ot_task_timings_join(&out, &(ot_task_timings){.rows = &rows[i], .count = 1});
  }
  assert_int_equal(out.count, 2);
  assert_int_equal(out.rows[0].runs->count, 3 + OT_TIMINGS_MOST);
  assert_float_equal(out.rows[0].runs->total_s, 6 + 10 * OT_TIMINGS_MOST, 1e-9);
  assert_float_equal(out.rows[0].runs->seconds[2], 3, 0);
  assert_float_equal(ot_timings_median(out.rows[0].runs), 10, 0);
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keeps_a_fifth_of_rounds),
      cmocka_unit_test(keeps_one_of_few_rounds),
      cmocka_unit_test(joins_rows_of_equal_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
