// SPDX-License-Identifier: Apache-2.0
// run: any machine. The best plans with another value: those of a search of that value alone, over
// several models and machines, and sentences about them that no shown plan contradicts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/explain.h"
#include "advise/what_if.h"
#include "base/quantity.h"
#include "support/paper_job.h"

enum { SHOWN = 5 };

typedef struct answered {
  paper_job paper;
  ot_search search;
  ot_other_plans others;
  ot_what_if w;
} answered;

static void answer(const char *model, int devices, int sequences, ot_candidate given, answered *x) {
  *x = (answered){0};
  paper_job_create(model, devices, sequences, 4096, &x->paper);
  ot_job *const job = &x->paper.job;
  ot_arena *const a = &x->paper.arena;
  job->given = given;
  assert_int_equal(ot_estimator_build(job, a, &x->w.estimator), OT_OK);
  const ot_search_request request = {
      .job = job, .top = SHOWN, .distinct = true, .estimator = x->w.estimator};
  assert_int_equal(ot_search_build(&request, a, &x->search), OT_OK);
  assert_true(x->search.num_plans > 0);
  ot_other_plans_choose(job, &x->search.plans[0], &x->others);
  assert_int_equal(ot_search_parts(&x->search, x->others.part, x->others.num, x->others.below_s,
                                   x->others.found),
                   OT_OK);
  x->w = (ot_what_if){x->w.estimator,     job, &x->search.plans[0], &x->others, x->search.plans,
                      x->search.num_plans};
}

static ot_candidate all_free(void) {
  return (ot_candidate){.zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1};
}

static const struct {
  const char *model;
  int devices, sequences;
} jobs[] = {{"llama3-8b", 64, 512},
            {"llama3-70b", 128, 512},
            {"mixtral-8x7b", 64, 512},
            {"gpt2-xl", 16, 512}};

// A search of the part alone, with its own estimator.
static ot_estimate search_alone(answered *x, const ot_search_part *part) {
  ot_job job = x->paper.job;
  ot_search search;
  job.given.tp = part->tp;
  job.given.pp = part->pp;
  job.given.cp = part->cp;
  job.given.ep = part->ep;
  job.given.zero = part->zero;
  const ot_search_request request = {.job = &job, .top = 1, .plans_only = true};
  if (ot_search_build(&request, &x->paper.arena, &search) != OT_OK || search.num_plans == 0)
    return (ot_estimate){0};
  return search.plans[0];
}

// A part that the share of the search does not settle has a bound, and often a plan.
static void parts_have_the_plan_of_their_own_search_or_bounds_around_it(void **state) {
  (void)state;
  int settled = 0, none = 0, open = 0;
  for (int i = 0; i < OT_COUNT(jobs); i++) {
    answered x;
    answer(jobs[i].model, jobs[i].devices, jobs[i].sequences, all_free(), &x);
    for (int p = 0; p < x.others.num; p++) {
      const ot_search_found *const found = &x.others.found[p];
      const double known_s = found->plan.step_s;
      const ot_estimate alone = search_alone(&x, &x.others.part[p]);
      assert_true(found->least_s <= x.others.below_s);
      if (alone.step_s > 0) assert_true(found->least_s <= alone.step_s);
      if (known_s > 0) assert_true(alone.step_s > 0 && alone.step_s <= known_s);
      settled += known_s > 0 && known_s == found->least_s;
      none += known_s == 0 && found->least_s == x.others.below_s;
      open += found->least_s < (known_s > 0 ? known_s : x.others.below_s);
    }
    paper_job_destroy(&x.paper);
  }
  assert_true(settled >= 10 && none >= 1 && open >= 1);
}

static const char *sentence_of(const answered *x, const ot_search_part *part, ot_arena *a) {
  if (part->zero >= 0) return ot_what_if_zero(&x->w, part->zero, a);
  if (part->tp > 0) return ot_what_if_tp(&x->w, part->tp, a);
  if (part->pp > 0) return ot_what_if_pp(&x->w, part->pp, a);
  return part->cp > 0 ? ot_what_if_cp(&x->w, part->cp, a) : ot_what_if_ep(&x->w, part->ep, a);
}

static void no_sentence_contradicts_a_plan_that_is_shown(void **state) {
  (void)state;
  int named = 0;
  for (int i = 0; i < OT_COUNT(jobs); i++) {
    answered x;
    answer(jobs[i].model, jobs[i].devices, jobs[i].sequences, all_free(), &x);
    ot_arena *const a = &x.paper.arena;
    for (int p = 0; p < x.others.num; p++) {
      const ot_search_part *const part = &x.others.part[p];
      const char *const text = sentence_of(&x, part, a);
      // Plans are shown fastest first: the first of the part is its best.
      for (int k = 0; k < x.search.num_plans; k++) {
        const ot_estimate *const shown = &x.search.plans[k];
        if (!ot_search_part_has(part, &shown->candidate)) continue;
        const char *const expected =
            ot_arena_format(a, ", plan %d, takes %s (", k + 1, ot_figure_seconds(a, shown->step_s));
        if (!strstr(text, expected)) fail_msg("plan %d against \"%s\"", k + 1, text);
        named++;
        break;
      }
    }
    paper_job_destroy(&x.paper);
  }
  assert_true(named >= 5);
}

static void decisions_within_the_degrees_are_searched(void **state) {
  (void)state;
  answered x;
  ot_candidate given = all_free();
  given.pp = 4;
  answer("llama3-70b", 128, 512, given, &x);
  ot_arena *const a = &x.paper.arena;
  const ot_candidate *const best = &x.w.best->candidate;
  ot_job job = x.paper.job;
  job.given.tp = best->tp;
  job.given.pp = best->pp;
  job.given.cp = best->cp;
  job.given.dp = best->dp;
  job.given.zero = best->zero;
  job.given.pipeline = OT_PIPELINE_1F1B;
  ot_search search;
  const ot_search_request request = {.job = &job, .top = 1};
  assert_int_equal(ot_search_build(&request, a, &search), OT_OK);
  const char *const expected =
      ot_arena_format(a, "; the best plan with 1f1b and these degrees takes %s (",
                      ot_figure_seconds(a, search.plans[0].step_s));
  const char *const text = ot_what_if_pipeline(&x.w, OT_PIPELINE_1F1B, a);
  assert_memory_equal(text, expected, strlen(expected));
  paper_job_destroy(&x.paper);
}

// Where the job fixes a degree, nothing else was searched.
static void a_fixed_value_is_changed_with_all_else_equal(void **state) {
  (void)state;
  answered x;
  ot_candidate given = all_free();
  given.tp = 2;
  answer("llama3-8b", 16, 64, given, &x);
  ot_arena *const a = &x.paper.arena;
  assert_non_null(strstr(ot_what_if_tp(&x.w, 1, a), "; tp 1, all else equal, "));
  assert_string_equal(ot_what_if_tp(&x.w, 3, a), "");
  x.w.estimator = NULL;
  assert_string_equal(ot_what_if_tp(&x.w, 1, a), "");
  paper_job_destroy(&x.paper);
}

static void misfits_are_reported_in_bytes(void **state) {
  (void)state;
  answered x;
  answer("llama3-8b", 64, 512, all_free(), &x);
  assert_true(x.w.best->candidate.zero > 0);
  const char *const text = ot_what_if_zero(&x.w, 0, &x.paper.arena);
  assert_non_null(strstr(text, "; no plan with zero 0 and these degrees takes less than "));
  assert_non_null(strstr(text, " it needs "));
  assert_non_null(strstr(text, " GB of 80 GB)"));
  paper_job_destroy(&x.paper);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_have_the_plan_of_their_own_search_or_bounds_around_it),
      cmocka_unit_test(no_sentence_contradicts_a_plan_that_is_shown),
      cmocka_unit_test(decisions_within_the_degrees_are_searched),
      cmocka_unit_test(a_fixed_value_is_changed_with_all_else_equal),
      cmocka_unit_test(misfits_are_reported_in_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
