// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// A plan for other numbers of devices, and its step action by action.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/scaling_curve.h"
#include "support/paper_job.h"

static const ot_candidate two_stages = {.tp = 2,
                                        .pp = 2,
                                        .vpp = 1,
                                        .cp = 1,
                                        .ep = 1,
                                        .etp = 1,
                                        .dp = 4,
                                        .dp_shard = 4,
                                        .zero = 1,
                                        .micro_batch_size = 2,
                                        .micro_batches = 8,
                                        .pipeline = OT_PIPELINE_1F1B};

static void compute_gets_less_as_devices_double_and_waiting_does_not(void **state) {
  (void)state;
  paper_job paper;
  paper_job_create("llama3-8b", 16, 64, 4096, &paper);
  ot_scaling scaling;
  ot_arena_pool *const scratch = ot_arena_array(&paper.arena, 1, sizeof *scratch);
  scratch->parent = &paper.arena;
  assert_int_equal(ot_scaling_build(&paper.job, &two_stages, scratch, &scaling), OT_OK);
  // dp from 1 to the 64 sequences of a step, times the four ranks of a replica.
  assert_int_equal(scaling.num, 7);
  for (int i = 0; i < scaling.num; i++) {
    const ot_estimate *const e = &scaling.estimate[i];
    assert_int_equal(scaling.devices[i], 4 << i);
    assert_int_equal(e->candidate.dp, 1 << i);
    assert_int_equal(e->candidate.dp * e->candidate.micro_batch_size * e->candidate.micro_batches,
                     64);
  }
  // With equal micro-batches, half of them are half of the work.
  assert_float_equal(scaling.estimate[3].compute_s, scaling.estimate[2].compute_s / 2,
                     1e-3 * scaling.estimate[2].compute_s);
  assert_true(scaling.estimate[5].bubble_fraction > scaling.estimate[2].bubble_fraction);
  assert_int_equal(scaling.estimate[6].candidate.micro_batch_size, 1);
  // The point of the job itself equals its own estimate.
  ot_estimator *estimator;
  ot_estimate own;
  assert_int_equal(ot_estimator_build(&paper.job, &paper.arena, &estimator), OT_OK);
  assert_int_equal(ot_estimate_build(estimator, &two_stages, &own), OT_OK);
  assert_float_equal(scaling.estimate[2].step_s, own.step_s, 1e-9 * own.step_s);
  paper_job_destroy(&paper);
}

static void a_replayed_step_has_every_action_once_in_order(void **state) {
  (void)state;
  paper_job paper;
  paper_job_create("llama3-8b", 16, 64, 4096, &paper);
  ot_estimator *estimator;
  ot_replayed_step step;
  ot_estimate estimate;
  assert_int_equal(ot_estimator_build(&paper.job, &paper.arena, &estimator), OT_OK);
  assert_int_equal(ot_estimate_build(estimator, &two_stages, &estimate), OT_OK);
  assert_int_equal(ot_estimate_replay(estimator, &two_stages, &paper.arena, &step), OT_OK);
  assert_int_equal(step.num_actions, 2 * (8 + 8) + 2);
  assert_true(step.total_s == estimate.step_s);
  double end_s[2] = {0}, busy_s[2] = {0};
  int seen[2][OT_REPLAYED_KINDS][8] = {{{0}}};
  for (int64_t i = 0; i < step.num_actions; i++) {
    const ot_replayed_action *const a = &step.actions[i];
    assert_true(a->start_s >= end_s[a->stage]);
    assert_true(a->end_s <= step.total_s);
    end_s[a->stage] = a->end_s;
    busy_s[a->stage] += a->end_s - a->start_s;
    if (a->micro_batch >= 0) seen[a->stage][a->kind][a->micro_batch]++;
  }
  for (int r = 0; r < 2; r++) {
    assert_true(end_s[r] <= step.total_s);
    for (int m = 0; m < 8; m++) {
      assert_int_equal(seen[r][OT_REPLAYED_FORWARD][m], 1);
      assert_int_equal(seen[r][OT_REPLAYED_BACKWARD][m], 1);
    }
  }
  // Idle time on the busier stage is the bubble plus what an estimate lists separately.
  const double busiest_s = busy_s[0] > busy_s[1] ? busy_s[0] : busy_s[1];
  assert_true(busiest_s > 0.5 * step.total_s && busiest_s < step.total_s);
  paper_job_destroy(&paper);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compute_gets_less_as_devices_double_and_waiting_does_not),
      cmocka_unit_test(a_replayed_step_has_every_action_once_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
