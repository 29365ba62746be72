// SPDX-License-Identifier: Apache-2.0
// run: any machine. Single changed decisions against estimates of the changed candidate.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/quantity.h"
#include "plan/explain.h"
#include "plan/what_if.h"
#include "support/paper_job.h"

typedef struct changed {
  paper_job paper;
  ot_estimate best;
  ot_what_if w;
} changed;

static ot_estimate estimate(changed *x, ot_candidate c) {
  ot_estimate e;
  c.micro_batches = ot_candidate_micro_batches(&x->paper.job, &c);
  if (ot_candidate_check(&x->paper.job, &c) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_estimate_build(x->w.estimator, &c, &e) != OT_OK) fail_msg("%s", ot_fail_message());
  return e;
}

// On 16 devices: pp 2, and dp in domains of two.
static void begin_with(const char *model, int tp, changed *x) {
  *x = (changed){0};
  paper_job_create(model, 16, 64, 4096, &x->paper);
  if (ot_estimator_build(&x->paper.job, &x->paper.arena, &x->w.estimator) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  const ot_candidate c = {.tp = tp,
                          .pp = 2,
                          .vpp = 1,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .dp = 8 / tp,
                          .dp_shard = 2,
                          .zero = 1,
                          .micro_batch_size = 1,
                          .pipeline = OT_PIPELINE_1F1B};
  x->best = estimate(x, c);
  x->w.job = &x->paper.job;
  x->w.best = &x->best;
}

static void begin(changed *x) { begin_with("llama3-8b", 2, x); }

static void expect_time(changed *x, const char *text, const char *name, const ot_estimate *e) {
  ot_arena *const a = &x->paper.arena;
  const double more = e->step_s / x->best.step_s - 1;
  const char *const terms = ot_explain_terms(e, &x->best, 2, a);
  assert_true(e->fits);
  const char *const colon = terms[0] != '\0' ? ": " : "";
  assert_string_equal(
      text, ot_arena_format(a, "; %s takes %s (%+.1f%%%s%s)", name, ot_figure_seconds(a, e->step_s),
                            100 * more, colon, terms));
}

static void ranks_of_an_axis_go_to_dp(void **state) {
  (void)state;
  changed x;
  begin(&x);
  ot_arena *const a = &x.paper.arena;
  ot_candidate c = x.best.candidate;
  c.tp = 1;
  c.dp = 8;
  const ot_estimate no_tp = estimate(&x, c);
  expect_time(&x, ot_what_if_tp(&x.w, 1, a), "tp 1 with dp 8", &no_tp);
  c = x.best.candidate;
  c.pp = 1;
  c.dp = 8;
  const ot_estimate no_pp = estimate(&x, c);
  expect_time(&x, ot_what_if_pp(&x.w, 1, a), "pp 1 with dp 8", &no_pp);
  c = x.best.candidate;
  c.cp = 2;
  c.dp = c.dp_shard = 2;
  const ot_estimate with_cp = estimate(&x, c);
  expect_time(&x, ot_what_if_cp(&x.w, 2, a), "cp 2 with dp 2", &with_cp);
  paper_job_destroy(&x.paper);
}

static void decisions_that_move_no_ranks(void **state) {
  (void)state;
  changed x;
  begin(&x);
  ot_arena *const a = &x.paper.arena;
  ot_candidate c = x.best.candidate;
  c.recompute = OT_RECOMPUTE_FULL;
  const ot_estimate full = estimate(&x, c);
  expect_time(&x, ot_what_if_recompute(&x.w, OT_RECOMPUTE_FULL, a), "full", &full);
  c = x.best.candidate;
  c.zero = 3;
  const ot_estimate three = estimate(&x, c);
  expect_time(&x, ot_what_if_zero(&x.w, 3, a), "zero 3", &three);
  c = x.best.candidate;
  c.pipeline = OT_PIPELINE_ZB_H1;
  const ot_estimate h1 = estimate(&x, c);
  expect_time(&x, ot_what_if_pipeline(&x.w, OT_PIPELINE_ZB_H1, a), "zb-h1", &h1);
  paper_job_destroy(&x.paper);
}

// Experts are sharded over existing ranks; no other tensor moves.
static void ep_moves_no_other_tensors(void **state) {
  (void)state;
  changed x;
  begin_with("olmoe-1b-7b", 1, &x);
  ot_arena *const a = &x.paper.arena;
  ot_candidate c = x.best.candidate;
  c.ep = 2;
  const ot_estimate two = estimate(&x, c);
  expect_time(&x, ot_what_if_ep(&x.w, 2, a), "ep 2", &two);
  assert_string_equal(ot_what_if_ep(&x.w, 3, a), "");
  assert_string_equal(ot_what_if_ep(&x.w, 16, a), "");
  paper_job_destroy(&x.paper);
}

// 8.03 G parameters in two shards need 64 GB, activations another 20.
static void misfits_are_reported_in_bytes(void **state) {
  (void)state;
  changed x;
  begin(&x);
  x.paper.cluster.device.memory_bytes = 30000000000;
  ot_estimator *small;
  if (ot_estimator_build(&x.paper.job, &x.paper.arena, &small) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  x.w.estimator = small;
  const char *const text = ot_what_if_zero(&x.w, 0, &x.paper.arena);
  assert_memory_equal(text, "; zero 0 needs ", 15);
  assert_non_null(strstr(text, " GB of 30 GB"));
  paper_job_destroy(&x.paper);
}

static void infeasible_alternatives_state_the_reason(void **state) {
  (void)state;
  changed x;
  begin(&x);
  ot_arena *const a = &x.paper.arena;
  x.paper.job.global_batch_size = 4;
  assert_string_equal(ot_what_if_tp(&x.w, 1, a),
                      "; tp 1 with dp 8 cannot run: global_batch_size=4 is not a multiple of "
                      "micro_batch_size=1 x dp=8");
  // 8 ranks of tp and dp cannot be regrouped with a tp of 3.
  assert_string_equal(ot_what_if_tp(&x.w, 3, a), "");
  x.w.estimator = NULL;
  assert_string_equal(ot_what_if_tp(&x.w, 1, a), "");
  paper_job_destroy(&x.paper);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_an_axis_go_to_dp),
      cmocka_unit_test(decisions_that_move_no_ranks),
      cmocka_unit_test(ep_moves_no_other_tensors),
      cmocka_unit_test(misfits_are_reported_in_bytes),
      cmocka_unit_test(infeasible_alternatives_state_the_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
