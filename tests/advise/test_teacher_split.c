// SPDX-License-Identifier: Apache-2.0
// run: any machine. A live teacher in the search: pruned searches against exhaustive ones of every
// split, with teachers of drawn times and sizes; what a step waits for and what a rank holds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/teacher_split.h"
#include "base/rng.h"
#include "estimate/job_check.h"
#include "host/heap.h"
#include "search/bound.h"
#include "search/space.h"
#include "support/paper_job.h"
#include "support/tiny_model.h"

enum { DEVICES = 6, PROBLEMS = 12 };

// A job with a teacher of the caller's figures.
typedef struct problem {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_cluster cluster;
  ot_run run;
  ot_teacher_pricer pricer;
  ot_teacher_price one;  // for one sequence
  int64_t asked;
  ot_job job;
} problem;

static ot_status price(void *context, const ot_run *run, const ot_cluster *cluster, int threads,
                       ot_teacher_price *out) {
  problem *const p = context;
  (void)cluster;
  (void)threads;
  p->asked++;
  *out = p->one;
  out->micro_batch_s *= (double)run->batch.micro_batch_size;
  out->bytes *= run->batch.micro_batch_size;
  return OT_OK;
}

static void create(problem *p) {
  *p = (problem){.model = tiny_gpt2(), .cluster = paper_machine(DEVICES)};
  p->arena = ot_heap_arena_create(&p->heap);
  p->run = tiny_run(&p->model);
  p->run.distill = (ot_run_distill){.objective = OT_DISTILL_SAMPLED,
                                    .from = OT_DISTILL_LIVE,
                                    .teacher = "teacher",
                                    .draws = 50,
                                    .targets = 8,
                                    .alpha = 1};
  p->one = (ot_teacher_price){.parameters = 1000, .bytes = 1000, .micro_batch_s = 1e-3};
  p->pricer = (ot_teacher_pricer){price, p};
  p->job = (ot_job){
      .model = &p->model,
      .cluster = &p->cluster,
      .engine = &ot_engine_orthant,
      .recipe = ot_recipe_of_run(&p->run.precision),
      .devices = DEVICES,
      .global_batch_size = 12,
      .sequence_length = 16,
      .run = &p->run,
      .teacher = &p->pricer,
      .given = {.zero = -1, .cp = 1, .pipeline = (ot_pipeline)-1, .recompute = OT_RECOMPUTE_NONE}};
}

static void destroy(problem *p) { ot_heap_release(&p->heap); }

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

// The job with `ranks` devices for the teacher.
static ot_job give(problem *p, int ranks, ot_run *run) {
  ot_job job = p->job;
  *run = p->run;
  run->distill.teacher_ranks = ranks;
  job.run = run;
  job.devices = DEVICES - ranks;
  return job;
}

static double fastest(problem *p, const ot_job *job) {
  const ot_search_request request = {.job = job, .top = 1, .exhaustive = true, .plans_only = true};
  ot_search found;
  must(ot_search_build(&request, &p->arena, &found));
  return found.num_plans > 0 ? found.plans[0].step_s : 1e300;
}

// The least step over all splits, simulating everything; and its ranks.
static double fastest_of_all(problem *p, int *ranks) {
  double least_s = 1e300;
  for (int t = 0; t < DEVICES; t++) {
    ot_run run;
    const ot_job job = give(p, t, &run);
    const double step_s = fastest(p, &job);
    if (step_s < least_s) *ranks = t;
    if (step_s < least_s) least_s = step_s;
  }
  return least_s;
}

static ot_teacher_split *split(problem *p, bool given) {
  ot_teacher_split *const out = ot_arena_array(&p->arena, 1, sizeof *out);
  ot_estimator *estimator;
  must(ot_estimator_build(&p->job, &p->arena, &estimator));
  must(ot_teacher_split_build(&p->job, given, ot_estimator_scratch(estimator), &p->arena, out));
  return out;
}

static void the_split_is_the_fastest_of_all_simulated(void **state) {
  (void)state;
  int together = 0, apart = 0;
  for (uint64_t i = 0; i < PROBLEMS; i++) {
    problem p;
    create(&p);
    p.one.micro_batch_s = 1e-6 * (double)(1 << ot_rng_below(7, i, 0, 12));
    p.one.bytes = 1 << ot_rng_below(7, i, 1, 22);
    p.cluster.device.memory_bytes = 1 << (18 + ot_rng_below(7, i, 2, 6));
    int ranks = 0;
    const double least_s = fastest_of_all(&p, &ranks);
    const ot_teacher_split *const made = split(&p, false);
    assert_int_equal(made->num_choices, DEVICES);
    if (least_s < 1e300) {
      assert_int_equal(made->run.distill.teacher_ranks, ranks);
      assert_int_equal(made->job.devices, DEVICES - ranks);
      assert_true(fastest(&p, &made->job) == least_s);
      together += ranks == 0;
      apart += ranks > 0;
    }
    destroy(&p);
  }
  assert_true(together > 0 && apart > 0);
}

static void each_micro_batch_size_is_priced_once(void **state) {
  (void)state;
  problem p;
  ot_run run;
  create(&p);
  const ot_job job = give(&p, 0, &run);
  fastest(&p, &job);
  assert_int_equal(p.asked, 3);  // divisors of the 4 and 2 sequences of 3 and 6 ranks of dp
  destroy(&p);
}

// Estimates of a few candidates, with a teacher and without.
static void compare(problem *p, int ranks, ot_candidate c, double waits_s, int64_t bytes) {
  ot_run run;
  ot_job job = give(p, ranks, &run);
  ot_estimator *with, *without;
  ot_estimate a, b;
  c.micro_batches = ot_candidate_micro_batches(&job, &c);
  must(ot_candidate_check(&job, &c));
  must(ot_estimator_build(&job, &p->arena, &with));
  must(ot_estimate_build(with, &c, &a));
  job.teacher = NULL;
  must(ot_estimator_build(&job, &p->arena, &without));
  must(ot_estimate_build(without, &c, &b));
  if (waits_s < 0) waits_s = -waits_s > b.step_s ? -waits_s - b.step_s : 0;
  assert_true(a.teacher_s == waits_s && a.step_s == b.step_s + waits_s);
  assert_true(a.bubble_fraction <= b.bubble_fraction);
  ot_stage_estimate *stages;
  must(ot_estimate_stages(with, &c, &p->arena, &stages));
  assert_int_equal(stages[c.pp - 1].memory.teacher, ranks == 0 ? bytes : 0);
  if (c.pp > 1) assert_int_equal(stages[0].memory.teacher, 0);
  assert_int_equal(a.memory.teacher, bytes);
  assert_int_equal(a.memory.stage, ranks == 0 ? c.pp - 1 : c.pp);
  ot_estimate_bound bound;
  const ot_bound_request deepest = {.candidate = &c, .depth = OT_BOUND_ORDER};
  must(ot_bound_build(with, &deepest, &bound));
  assert_true(bound.step_s <= a.step_s && bound.step_s >= waits_s);
  assert_true(bound.peak <= a.memory.peak && bound.peak >= bytes);
}

// Twelve sequences: a rank of dp has 12 / dp micro-batches of one.
static void a_step_waits_for_a_teacher_and_ranks_hold_it(void **state) {
  (void)state;
  enum { LARGE = 1 << 27 };
  problem p;
  create(&p);
  p.one.bytes = LARGE;
  p.one.micro_batch_s = 0.5;
  ot_candidate c = {.tp = 1, .pp = 2, .vpp = 1, .cp = 1, .ep = 1, .etp = 1, .micro_batch_size = 1};
  c.dp = 3;
  compare(&p, 0, c, 4 * 0.5, LARGE);
  c.dp = 2;
  // Negative: less what the step takes. One of two teachers for a rank each, or both for one.
  compare(&p, 2, c, -6 * 0.5, LARGE);
  c.pp = 1;
  c.dp = 4;
  compare(&p, 2, c, -2 * 3 * 0.5, LARGE);
  c.dp = 3;
  compare(&p, 3, c, -4 * 0.5, LARGE);
  c.dp = 2;
  compare(&p, 4, c, -6 * 0.5, LARGE);  // two of four teachers have nothing to do
  c.dp = 3;
  p.one.micro_batch_s = 1e-9;
  compare(&p, 3, c, -4e-9, LARGE);
  destroy(&p);
}

static void a_teacher_that_fits_only_alone_is_given_ranks(void **state) {
  (void)state;
  problem p;
  create(&p);
  p.one.micro_batch_s = 1e-9;
  p.cluster.device.memory_bytes = 1 << 20;
  p.one.bytes = (1 << 20) - 1000;
  assert_true(split(&p, false)->run.distill.teacher_ranks > 0);
  p.one.bytes = (1 << 20) + 1;
  ot_run run;
  for (int t = 0; t < DEVICES; t++) {
    const ot_job job = give(&p, t, &run);
    assert_true(fastest(&p, &job) == 1e300);
  }
  destroy(&p);
}

static void given_ranks_and_rollouts_leave_no_choice(void **state) {
  (void)state;
  problem p;
  create(&p);
  ot_run run;
  p.job = give(&p, 2, &run);
  const ot_teacher_split *made = split(&p, true);
  assert_int_equal(made->num_choices, 1);
  assert_int_equal(made->run.distill.teacher_ranks, 2);
  assert_int_equal(made->job.devices, DEVICES - 2);
  destroy(&p);
  create(&p);
  p.run.distill.objective = OT_DISTILL_REVERSE_KL;
  made = split(&p, false);
  assert_int_equal(made->num_choices, 1);
  assert_int_equal(made->job.devices, DEVICES);
  destroy(&p);
}

static void large_fleets_are_split_into_sixteenths_and_halves(void **state) {
  (void)state;
  problem p;
  create(&p);
  p.cluster = paper_machine(1024);
  p.job.devices = 1024;
  p.job.global_batch_size = 1024;
  p.job.given = (ot_candidate){.tp = 1,
                               .cp = 1,
                               .zero = 0,
                               .micro_batch_size = 1,
                               .pipeline = OT_PIPELINE_1F1B,
                               .recompute = OT_RECOMPUTE_NONE};
  const ot_teacher_split *const made = split(&p, false);
  assert_int_equal(made->num_choices, 16 + 6);
  assert_int_equal(made->choices[15].ranks, 960);
  assert_int_equal(made->choices[16].ranks, 32);
  assert_int_equal(made->choices[21].ranks, 1);
  destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_split_is_the_fastest_of_all_simulated),
      cmocka_unit_test(each_micro_batch_size_is_priced_once),
      cmocka_unit_test(a_step_waits_for_a_teacher_and_ranks_hold_it),
      cmocka_unit_test(a_teacher_that_fits_only_alone_is_given_ranks),
      cmocka_unit_test(given_ranks_and_rollouts_leave_no_choice),
      cmocka_unit_test(large_fleets_are_split_into_sixteenths_and_halves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
