// SPDX-License-Identifier: Apache-2.0
// run: any machine. The rows of optimizers agree with their ops and with the settings of a run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/optimizer_rules.h"
#include "ops/catalog.h"
#include "ops/operands.h"
#include "ops/optimizer.h"

static ot_run run_of(ot_optimizer_name name) {
  return (ot_run){.optimizer = {.name = name, .betas = {0.5, 0.25}, .momentum = 0.125}};
}

// The outputs of an update are the weights, the moments, the master weights and two sums.
static void ops_write_the_moments_of_their_row(void **state) {
  (void)state;
  for (int name = 0; name < OT_OPTIMIZERS; name++) {
    const ot_run run = run_of((ot_optimizer_name)name);
    const ot_optimizer_rules *const rules = ot_optimizer_rules_of(&run, true);
    assert_int_equal(rules->moments, ot_op_info_of(ot_optimizer_op(rules->name))->num_outputs - 3);
    assert_int_equal(ot_run_moments(&run, true), rules->moments);
  }
}

static bool accepts(ot_op_kind op, ot_tensor_type gradient) {
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  ot_op_types types = {.in = {gradient, ot_type_vector(OT_F64, OT_STEP_SCALARS)}};
  return ot_op_infer(op, &attributes, &types) == OT_OK;
}

static void ops_of_whole_matrices_refuse_shards(void **state) {
  (void)state;
  for (int name = 0; name < OT_OPTIMIZERS; name++) {
    const ot_run run = run_of((ot_optimizer_name)name);
    const ot_optimizer_rules *const rules = ot_optimizer_rules_of(&run, true);
    const ot_op_kind op = ot_optimizer_op(rules->name);
    assert_true(accepts(op, ot_type_matrix(OT_F32, 4, 6)));
    assert_int_equal(accepts(op, ot_type_vector(OT_F32, 24)), !rules->whole_matrices);
  }
}

static void decays_are_those_of_the_settings(void **state) {
  (void)state;
  const ot_run adamw = run_of(OT_OPTIMIZER_ADAMW), muon = run_of(OT_OPTIMIZER_MUON);
  const ot_optimizer_rules *const matrices = ot_optimizer_rules_of(&muon, true);
  const ot_optimizer_rules *const others = ot_optimizer_rules_of(&muon, false);
  assert_true(others == ot_optimizer_rules_of(&adamw, true));
  assert_true(others == ot_optimizer_rules_of(NULL, true));
  assert_true(ot_optimizer_decay(&muon, others, 0) == 0.5);
  assert_true(ot_optimizer_decay(&muon, others, 1) == 0.25);
  assert_true(ot_optimizer_decay(&muon, matrices, 0) == 0.125);
  assert_true(ot_optimizer_decay(&muon, matrices, 1) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ops_write_the_moments_of_their_row),
      cmocka_unit_test(ops_of_whole_matrices_refuse_shards),
      cmocka_unit_test(decays_are_those_of_the_settings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
