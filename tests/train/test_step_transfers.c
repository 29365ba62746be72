// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,4 as threads. A training step copies once to the arena and once from it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/audit_case.h"

static ot_executor_transfers count(const audit_rank *rank) {
  return ot_executor_count_transfers(ot_runtime_executor(ot_trainer_runtime(rank->trainer)));
}

static ot_status steps_with_two_copies(audit_rank *rank) {
  for (int step = 0; step < 3; step++) {
    const ot_executor_transfers before = count(rank);
    ot_step_report report;
    OT_TRY(audit_step(rank, &report));
    const ot_executor_transfers after = count(rank);
    OT_CHECK(report.micro_batches > 1, OT_BUG, "a single micro-batch");
    OT_CHECK(after.writes == before.writes + 1 && after.reads == before.reads + 1, OT_BUG,
             "step %d: %lld writes and %lld reads", step, (long long)(after.writes - before.writes),
             (long long)(after.reads - before.reads));
  }
  return OT_OK;
}

static void must_copy_twice(audit_request request) {
  request.batch = 8;
  request.micro_batch = 1;
  if (audit_run(&request, steps_with_two_copies, NULL) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void a_step_writes_once_and_reads_once(void **state) {
  (void)state;
  const ot_model model = audit_model(1, true);
  must_copy_twice((audit_request){.model = model});
  must_copy_twice((audit_request){.model = model, .dp_replicate = 2, .dp_shard = 2, .zero = 3});
  must_copy_twice((audit_request){.model = model, .pp = 2, .cp = 2});
}

static void so_does_a_step_with_experts(void **state) {
  (void)state;
  audit_request request = audit_moe_request(2, 4);
  request.dp_shard = 2;
  must_copy_twice(request);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_writes_once_and_reads_once),
      cmocka_unit_test(so_does_a_step_with_experts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
