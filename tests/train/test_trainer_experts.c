// SPDX-License-Identifier: Apache-2.0
// run: ranks=1 as threads. Expert statistics of a step: a number if defined, else none.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "support/audit_case.h"

static audit_request experts(ot_moe_routing routing) {
  audit_request request = audit_moe_request(2, 4);
  request.model.moe.routing = routing;
  return request;
}

static ot_status step(audit_rank *rank) { return audit_step(rank, rank->context); }

static ot_metrics_experts said_of(ot_moe_routing routing) {
  const audit_request request = experts(routing);
  ot_step_report report;
  if (audit_run(&request, step, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report.experts;
}

static void tokens_that_choose_have_a_loss_of_balance(void **state) {
  (void)state;
  const ot_metrics_experts said = said_of(OT_MOE_DROPLESS);
  assert_true(said.aux_loss >= 0.9);  // 1 if all experts have equal load
  assert_true(said.z_loss > 0);
  assert_true(said.drop_share == 0);
  assert_true(said.rounds == 1);
}

static void expert_choice_has_no_balance_loss(void **state) {
  (void)state;
  const ot_metrics_experts said = said_of(OT_MOE_EXPERT_CHOICE);
  assert_true(isnan(said.aux_loss));
  assert_true(said.z_loss > 0);
  assert_true(said.load_max == 1);
  assert_true(said.drop_share >= 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_that_choose_have_a_loss_of_balance),
      cmocka_unit_test(expert_choice_has_no_balance_loss),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
