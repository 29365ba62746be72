// SPDX-License-Identifier: Apache-2.0
// Searches one split after the other, the teacher next to the model first.
#include "advise/teacher_split.h"

#include "estimate/job_check.h"
#include "estimate/teacher_cost.h"

enum { FULL = 16, MOST_CHOICES = 64 };

// `job` with `ranks` of all its devices for the teacher alone, in `out` and `run`.
static void assign_ranks(const ot_job *job, int ranks, ot_job *out, ot_run *run) {
  *run = *job->run;
  ot_run_set_teacher_ranks(run, ranks);
  *out = *job;
  out->run = run;
  out->devices = ot_job_all_devices(job) - ranks;
}

// Searches the split for a plan faster than `best_s`; 0: for any.
static ot_status search_choice(const ot_job *fleet, ot_arena_pool *scratch, double best_s,
                               ot_teacher_choice *choice) {
  ot_job job;
  ot_run run;
  ot_search search;
  ot_arena plans = ot_arena_pool_begin(scratch);
  const ot_search_request request = {.job = &job, .top = 1, .plans_only = true, .below_s = best_s};
  assign_ranks(fleet, choice->ranks, &job, &run);
  // Degrees that are given may not divide what remains.
  if (ot_job_check(&job) != OT_OK) return OT_OK;
  OT_TRY(ot_search_build(&request, &plans, &search));
  if (search.num_plans > 0) choice->step_s = search.plans[0].step_s;
  return OT_OK;
}

static void add(int ranks, int devices, ot_teacher_split *out) {
  if (ranks < 0 || ranks >= devices) return;
  for (int i = 0; i < out->num_choices; i++) {
    if (out->choices[i].ranks == ranks) return;
  }
  out->choices[out->num_choices++] = (ot_teacher_choice){.ranks = ranks};
}

static void list_choices(int devices, ot_teacher_split *out) {
  const int parts = devices < FULL ? devices : FULL;
  for (int i = 0; i < parts; i++) add((int)((int64_t)devices * i / parts), devices, out);
  for (int ranks = devices / FULL; ranks > 0; ranks /= 2) add(ranks, devices, out);
}

static ot_status price_one(const ot_job *job, ot_arena_pool *scratch, ot_teacher_price *out) {
  const ot_candidate one = {
      .tp = 1, .pp = 1, .vpp = 1, .cp = 1, .ep = 1, .etp = 1, .dp = 1, .micro_batch_size = 1};
  ot_estimator *estimator;
  ot_arena arena = ot_arena_pool_begin(scratch);
  OT_TRY(ot_estimator_build(job, &arena, &estimator));
  return ot_teacher_cost_find(estimator, &one, out);
}

ot_status ot_teacher_split_build(const ot_job *job, bool given, ot_arena_pool *scratch,
                                 ot_arena *arena, ot_teacher_split *out) {
  const int own = ot_run_teacher_ranks(job->run);
  const ot_teacher_choice *best = NULL;
  *out = (ot_teacher_split){.choices = ot_arena_array(arena, MOST_CHOICES, sizeof *out->choices)};
  OT_TRY(price_one(job, scratch, &out->price));
  // The model's own texts do not exist before its step, so no teacher can be ahead of it.
  given = given || ot_run_teacher_judges(job->run);
  if (given) out->choices[out->num_choices++].ranks = own;
  if (!given) list_choices(ot_job_all_devices(job), out);
  for (int i = 0; i < out->num_choices && !given; i++) {
    ot_teacher_choice *const choice = &out->choices[i];
    OT_TRY(search_choice(job, scratch, best ? best->step_s : 0, choice));
    if (choice->step_s > 0) best = choice;
  }
  assign_ranks(job, best ? best->ranks : own, &out->job, &out->run);
  return OT_OK;
}
