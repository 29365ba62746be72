// SPDX-License-Identifier: Apache-2.0
// run: any machine. The tables that planning reads agree with the kernels that are linked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/backend_rules.h"
#include "kernels/kernels.h"
#include "ops/operands.h"
#include "workspace/workspace.h"

static void launches_join_what_has_a_joined_kernel(void **state) {
  (void)state;
  for (int backend = 0; backend < OT_BACKENDS; backend++) {
    for (int kind = 0; kind < OT_OP_COUNT; kind++) {
      const ot_joined_kernel joined =
          ot_kernel_find_joined((ot_backend)backend, (ot_op_kind)kind, OT_F32);
      const int most = ot_op_joined((ot_op_kind)kind, (ot_backend)backend);
      assert_int_equal(most > 1, joined != NULL);
      assert_true(most <= OT_JOINED_MOST);
    }
  }
}

// The products of a chunk of the sharded head are linear layers.
static void scratch_of_head_statistics_is_that_of_its_product(void **state) {
  (void)state;
  const ot_op_attributes a = {.threads = 1, .compute = OT_F32, .chunk_rows = 24};
  const ot_tensor_type chunk = ot_type_matrix(OT_BF16, 24, 48), x = ot_type_matrix(OT_BF16, 96, 48);
  const ot_tensor_type w = ot_type_matrix(OT_BF16, 100, 48), e = ot_type_matrix(OT_F32, 24, 100);
  const ot_op_types head = {.in = {x, w}, .out = {e}}, linear = {.in = {chunk, w}, .out = {e}};
  const int64_t bytes = ot_op_workspace(OT_OP_HEAD_STATISTICS, &a, &head);
  assert_true(bytes > 0);
  assert_int_equal(bytes, ot_op_workspace(OT_OP_LINEAR, &a, &linear));
}

static void kernels_refuse_wider_heads_than_planned(void **state) {
  (void)state;
  for (int backend = 0; backend < OT_BACKENDS; backend++) {
    const int64_t widest = ot_backend_rules_of((ot_backend)backend)->widest_head;
    const ot_op_attributes fits = {.head_dim = widest > 0 ? widest : 1024};
    const ot_op_attributes wider = {.head_dim = fits.head_dim + 1};
    assert_null(ot_kernel_refuses((ot_backend)backend, OT_OP_ATTENTION, &fits));
    const char *const reason = ot_kernel_refuses((ot_backend)backend, OT_OP_ATTENTION, &wider);
    assert_int_equal(reason != NULL, widest > 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(launches_join_what_has_a_joined_kernel),
      cmocka_unit_test(scratch_of_head_statistics_is_that_of_its_product),
      cmocka_unit_test(kernels_refuse_wider_heads_than_planned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
