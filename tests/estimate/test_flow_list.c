// SPDX-License-Identifier: Apache-2.0
// run: any machine. The ring of pipeline flows: what was overwritten is built again.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "estimate/estimate.h"
#include "estimate/estimator.h"
#include "support/paper_job.h"

static ot_candidate long_step(int64_t micro_batches) {
  return (ot_candidate){.tp = 1,
                        .pp = 8,
                        .vpp = 1,
                        .cp = 1,
                        .ep = 1,
                        .etp = 1,
                        .dp = 1,
                        .dp_shard = 1,
                        .micro_batch_size = 1,
                        .micro_batches = micro_batches,
                        .pipeline = OT_PIPELINE_1F1B};
}

static const ot_pipeline_flow *flow_of(ot_estimator *estimator, int64_t micro_batches) {
  const ot_candidate candidate = long_step(micro_batches);
  const ot_stage_partition *cut;
  const ot_pipeline_flow *flow;
  assert_int_equal(ot_stage_partition_find(estimator, &candidate, &cut), OT_OK);
  assert_int_equal(ot_flow_find(estimator, &candidate, &cut->stages, &flow), OT_OK);
  assert_int_equal(flow->micro_batches, micro_batches);
  return flow;
}

// The one that was asked for before stays valid, too.
static void flows_that_were_overwritten_are_built_again(void **state) {
  (void)state;
  enum { LEAST = 1000, MOST = 1040 };
  paper_job p;
  ot_estimator *estimator, *other;
  paper_job_create("llama3-8b", 8, 1 << 12, 2048, &p);
  assert_int_equal(ot_estimator_build(&p.job, &p.arena, &estimator), OT_OK);
  assert_int_equal(ot_estimator_build(&p.job, &p.arena, &other), OT_OK);
  const ot_pipeline_flow *before = flow_of(estimator, LEAST);
  const int64_t bytes = estimator->flows.bytes;
  for (int m = LEAST + 1; m <= MOST; m++) {
    const ot_pipeline_flow *const flow = flow_of(estimator, m);
    assert_int_equal(before->micro_batches, m - 1);
    assert_int_equal(before->actions[before->num_actions - 1].micro_batch, m - 2);
    before = flow;
  }
  assert_int_equal(estimator->flows.bytes, bytes);
  assert_true(estimator->flows.count < MOST - LEAST);
  const ot_pipeline_flow *const again = flow_of(estimator, LEAST), *const one =
                                                                       flow_of(other, LEAST);
  assert_int_equal(again->num_actions, one->num_actions);
  assert_memory_equal(again->actions, one->actions,
                      (size_t)one->num_actions * sizeof *one->actions);
  for (int c = 0; c < one->num_chunks; c++) {
    assert_int_equal(again->before_last[c], LEAST - 1);
    assert_int_equal(again->most[OT_SAVED_SHORT][c], one->most[OT_SAVED_SHORT][c]);
  }
  paper_job_destroy(&p);
}

// Longer and longer steps: the ring grows, and all rings take at most twice what the last one does.
static void the_ring_grows_with_the_longest_step(void **state) {
  (void)state;
  enum { LEAST = 1 << 13, MOST = 1 << 15 };
  paper_job p;
  ot_estimator *estimator;
  paper_job_create("llama3-8b", 8, 1 << 16, 2048, &p);
  assert_int_equal(ot_estimator_build(&p.job, &p.arena, &estimator), OT_OK);
  const ot_pipeline_flow *before = flow_of(estimator, LEAST);
  int64_t bytes = estimator->flows.bytes, all = bytes;
  for (int m = LEAST + 1024; m <= MOST; m += 1024) {
    const ot_pipeline_flow *const flow = flow_of(estimator, m);
    assert_int_equal(before->micro_batches, m - 1024);
    assert_int_equal(before->actions[before->num_actions - 1].micro_batch, m - 1025);
    before = flow;
    if (estimator->flows.bytes == bytes) continue;
    bytes = estimator->flows.bytes;
    all += bytes;
  }
  assert_true(all > bytes && all <= 2 * bytes);
  paper_job_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(flows_that_were_overwritten_are_built_again),
      cmocka_unit_test(the_ring_grows_with_the_longest_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
