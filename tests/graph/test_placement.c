// SPDX-License-Identifier: Apache-2.0
// run: any machine. Placements and their duals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/placement.h"

static const ot_placement all[] = {
    {OT_INVARIANT, 0}, {OT_REPLICATED, 0}, {OT_SHARDED, 0},
    {OT_SHARDED, 1},   {OT_VARYING, 0},    {OT_PARTIAL, 0},
};
enum { NUM_ALL = sizeof all / sizeof all[0] };

static void the_dual_of_a_dual_is_the_placement(void **state) {
  (void)state;
  for (int i = 0; i < NUM_ALL; i++) {
    assert_true(ot_placement_equal(all[i], ot_placement_dual(ot_placement_dual(all[i]))));
  }
}

static void names_tell_placements_apart(void **state) {
  (void)state;
  for (int i = 0; i < NUM_ALL; i++) {
    for (int k = 0; k < i; k++) {
      assert_false(ot_placement_equal(all[i], all[k]));
      assert_string_not_equal(ot_placement_name(all[i]), ot_placement_name(all[k]));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_dual_of_a_dual_is_the_placement),
      cmocka_unit_test(names_tell_placements_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
