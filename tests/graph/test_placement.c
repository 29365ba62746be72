// SPDX-License-Identifier: Apache-2.0
// run: any machine. The table of conversions against the duality it must obey.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/placement.h"

static const ot_placement all[] = {
    {OT_INVARIANT, 0}, {OT_REPLICATED, 0}, {OT_SHARDED, 0}, {OT_SHARDED, 1},
    {OT_VARYING, 0},   {OT_PARTIAL, 0},    {OT_FLAT, 0},
};
enum { NUM_ALL = sizeof all / sizeof all[0] };

static void the_dual_of_a_dual_is_the_placement(void **state) {
  (void)state;
  for (int i = 0; i < NUM_ALL; i++) {
    assert_true(ot_placement_equal(all[i], ot_placement_dual(ot_placement_dual(all[i]))));
  }
}

static void every_conversion_that_gradients_pass_has_its_transpose(void **state) {
  (void)state;
  for (int i = 0; i < NUM_ALL; i++) {
    for (int k = 0; k < NUM_ALL; k++) {
      if (ot_placement_convert(all[i], all[k]) == OT_CONVERT_IMPOSSIBLE) continue;
      const ot_conversion back =
          ot_placement_convert(ot_placement_dual(all[k]), ot_placement_dual(all[i]));
      if (back == OT_CONVERT_IMPOSSIBLE) {
        fail_msg("%s -> %s converts, its transpose does not", ot_placement_name(all[i]),
                 ot_placement_name(all[k]));
      }
    }
  }
}

static void transposes_are_those_of_the_literature(void **state) {
  (void)state;
  const ot_placement I = {OT_INVARIANT, 0}, R = {OT_REPLICATED, 0}, S = {OT_SHARDED, 0};
  const ot_placement P = {OT_PARTIAL, 0}, F = {OT_FLAT, 0}, S1 = {OT_SHARDED, 1};
  // Forward conversion and the one its gradient makes, dual(to) -> dual(from).
  assert_int_equal(ot_placement_convert(S, R), OT_CONVERT_ALL_GATHER);
  assert_int_equal(ot_placement_convert(P, S), OT_CONVERT_REDUCE_SCATTER);
  assert_int_equal(ot_placement_convert(I, R), OT_CONVERT_RETYPE);
  assert_int_equal(ot_placement_convert(P, I), OT_CONVERT_ALL_REDUCE);
  assert_int_equal(ot_placement_convert(P, R), OT_CONVERT_ALL_REDUCE);
  assert_int_equal(ot_placement_convert(F, R), OT_CONVERT_ALL_GATHER);
  assert_int_equal(ot_placement_convert(P, F), OT_CONVERT_REDUCE_SCATTER);
  assert_int_equal(ot_placement_convert(S, S1), OT_CONVERT_ALL_TO_ALL);
  assert_int_equal(ot_placement_convert(S, I), OT_CONVERT_ALL_GATHER);
  assert_int_equal(ot_placement_convert(I, S), OT_CONVERT_SLICE);
}

static void nothing_turns_a_replicated_value_into_an_invariant_one(void **state) {
  (void)state;
  const ot_placement I = {OT_INVARIANT, 0}, R = {OT_REPLICATED, 0};
  assert_int_equal(ot_placement_convert(R, I), OT_CONVERT_IMPOSSIBLE);
}

static void ring_volumes_are_counted(void **state) {
  (void)state;
  assert_true(ot_conversion_elements(OT_CONVERT_ALL_GATHER, 800, 8) == 700);
  assert_true(ot_conversion_elements(OT_CONVERT_ALL_REDUCE, 800, 8) == 1400);
  assert_true(ot_conversion_elements(OT_CONVERT_ALL_REDUCE, 800, 1) == 0);
  assert_true(ot_conversion_elements(OT_CONVERT_RETYPE, 800, 8) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_dual_of_a_dual_is_the_placement),
      cmocka_unit_test(every_conversion_that_gradients_pass_has_its_transpose),
      cmocka_unit_test(transposes_are_those_of_the_literature),
      cmocka_unit_test(nothing_turns_a_replicated_value_into_an_invariant_one),
      cmocka_unit_test(ring_volumes_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
