// SPDX-License-Identifier: Apache-2.0
// Sentences about plans that a search or a price finds.
#include "advise/what_if.h"

#include "advise/explain.h"
#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing.h"
#include "estimate/estimator.h"
#include "estimate/job_check.h"
#include "search/search.h"

enum { TOLD_TERMS = 2 };  // terms listed per alternative

// Adapts `c` to its new dp: whole micro-batches, and states sharded over all of dp if they were.
// Without ranks of tp, the trade of an axis was impossible.
static void fit(const ot_what_if *w, ot_candidate *c) {
  if (c->tp == 0) return;
  const ot_candidate *const best = &w->best->candidate;
  const bool all = best->dp_shard == best->dp || c->dp % best->dp_shard != 0;
  if (all) c->dp_shard = c->dp;
  ot_candidate_cross(w->job, c);
  c->micro_batches = ot_candidate_micro_batches(w->job, c);
  if (c->micro_batches > 0) return;
  c->micro_batch_size = 1;
  c->micro_batches = ot_candidate_micro_batches(w->job, c);
}

// Changes an axis from `old` to `now` ranks; dp absorbs the factor. False if that is impossible.
static bool trade(ot_candidate *c, int old, int now) {
  const int64_t ranks = (int64_t)c->dp * old;
  if (now < 1 || ranks % now != 0) return false;
  c->dp = (int)(ranks / now);
  return true;
}

// "24.1 s (+13.3%: exposed tp +2.31 s, compute +512 ms)"
static const char *time_text(const ot_what_if *w, const ot_estimate *e, ot_arena *arena) {
  const char *const terms = ot_explain_terms(e, w->best, TOLD_TERMS, arena);
  return ot_arena_format(arena, "%s (%+.1f%%%s%s)", ot_figure_seconds(arena, e->step_s),
                         100 * (e->step_s / w->best->step_s - 1), terms[0] != '\0' ? ": " : "",
                         terms);
}

static const char *need_text(const ot_estimate *e, ot_arena *arena) {
  return ot_figure_need(arena, (double)(e->memory.reserved + e->memory.context),
                        (double)ot_memory_limit(&e->memory));
}

static const char *refusal(const char *text, ot_arena *arena) {
  const char *const prefix = "plan: ";
  const bool prefixed = ot_text_starts_with(text, prefix);
  return ot_arena_format(arena, "%s", text + (prefixed ? ot_text_length(prefix) : 0));
}

// ", plan 3,", if it is shown.
static const char *number_text(const ot_what_if *w, const ot_candidate *c, ot_arena *arena) {
  for (int i = 0; i < w->num_plans; i++) {
    if (ot_candidate_compare(&w->plans[i].candidate, c) == 0)
      return ot_arena_format(arena, ", plan %d,", i + 1);
  }
  return "";
}

static const char *best_text(const ot_what_if *w, const char *value, const ot_estimate *e,
                             ot_arena *arena) {
  return ot_arena_format(arena, "; the best plan with %s%s takes %s", value,
                         number_text(w, &e->candidate, arena), time_text(w, e, arena));
}

// The reason that `c`, the plan with only this value changed, cannot run: "", or in parentheses,
// where `with` names what changes with the value.
static const char *obstacle(const ot_what_if *w, const char *with, const ot_candidate *c,
                            ot_arena *arena) {
  ot_estimate e;
  if (ot_candidate_check(w->job, c) != OT_OK)
    return ot_arena_format(arena, " (%s: %s)", with, refusal(ot_fail_message(), arena));
  if (ot_estimate_build(w->estimator, c, &e) != OT_OK || e.fits) return "";
  return ot_arena_format(arena, " (%s it needs %s)", with, need_text(&e, arena));
}

// The plan with all else equal, where the job fixes another value.
static const char *equal_text(const ot_what_if *w, const char *value, const ot_candidate *c,
                              ot_arena *arena) {
  ot_estimate e;
  const char *const name = ot_arena_format(arena, "%s, all else equal,", value);
  if (ot_candidate_check(w->job, c) != OT_OK)
    return ot_arena_format(arena, "; %s cannot run: %s", name, refusal(ot_fail_message(), arena));
  if (ot_estimate_build(w->estimator, c, &e) != OT_OK) return "";
  if (!e.fits) return ot_arena_format(arena, "; %s needs %s", name, need_text(&e, arena));
  return ot_arena_format(arena, "; %s takes %s", name, time_text(w, &e, arena));
}

static bool is_same(const ot_search_part *a, const ot_search_part *b) {
  return a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep && a->zero == b->zero;
}

// One value that is changed: of an axis, or of the ZeRO stage.
typedef struct change {
  const char *value;    // "tp 4"
  const char *with;     // "with dp 256"
  ot_search_part part;  // that has it
  bool fixed;           // the job has another
  ot_candidate equal;   // the plan with all else equal; tp 0: there is none
} change;

// The fastest plan with the value is not known.
static const char *bound_text(const ot_what_if *w, const change *x, const ot_search_found *found,
                              ot_arena *arena) {
  const char *why = "";
  if (found->plan.step_s > 0) {
    why = ot_arena_format(arena, "; one%s takes %s", number_text(w, &found->plan.candidate, arena),
                          time_text(w, &found->plan, arena));
  } else if (x->equal.tp > 0) {
    why = obstacle(w, x->with, &x->equal, arena);
  }
  return ot_arena_format(arena, "; no plan with %s takes less than %s%s", x->value,
                         ot_figure_seconds(arena, found->least_s), why);
}

static const char *describe_change(const ot_what_if *w, const change *x, ot_arena *arena) {
  const ot_other_plans *const others = w->others;
  if (x->fixed) return x->equal.tp > 0 ? equal_text(w, x->value, &x->equal, arena) : "";
  for (int i = 0; others && i < others->num; i++) {
    if (!is_same(&others->part[i], &x->part)) continue;
    const ot_search_found *const found = &others->found[i];
    if (found->plan.step_s > 0 && found->plan.step_s <= found->least_s)
      return best_text(w, x->value, &found->plan, arena);
    return bound_text(w, x, found, arena);
  }
  return "";
}

static change traded(const ot_what_if *w, const char *axis, int old, int now, ot_arena *arena) {
  change x = {.value = ot_arena_format(arena, "%s %d", axis, now),
              .part.zero = -1,
              .equal = w->best->candidate};
  if (!trade(&x.equal, old, now)) x.equal.tp = 0;
  x.with = ot_arena_format(arena, "with dp %d", x.equal.dp);
  return x;
}

static bool fixes(int given, int value) { return given > 0 && given != value; }

const char *ot_what_if_tp(const ot_what_if *w, int tp, ot_arena *arena) {
  if (!w->estimator) return "";
  change x = traded(w, "tp", w->best->candidate.tp, tp, arena);
  x.part.tp = tp;
  x.fixed = fixes(w->job->given.tp, tp);
  if (x.equal.tp > 0) x.equal.tp = tp;
  fit(w, &x.equal);
  return describe_change(w, &x, arena);
}

const char *ot_what_if_pp(const ot_what_if *w, int pp, ot_arena *arena) {
  if (!w->estimator) return "";
  change x = traded(w, "pp", w->best->candidate.pp, pp, arena);
  if (w->best->candidate.pp == 1 || pp == 1) {
    x.equal.pipeline = OT_PIPELINE_1F1B;
    x.equal.vpp = 1;
  }
  x.equal.pp = x.part.pp = pp;
  x.fixed = fixes(w->job->given.pp, pp);
  fit(w, &x.equal);
  return describe_change(w, &x, arena);
}

const char *ot_what_if_cp(const ot_what_if *w, int cp, ot_arena *arena) {
  if (!w->estimator) return "";
  change x = traded(w, "cp", w->best->candidate.cp, cp, arena);
  x.equal.cp = x.part.cp = cp;
  x.fixed = fixes(w->job->given.cp, cp);
  fit(w, &x.equal);
  return describe_change(w, &x, arena);
}

const char *ot_what_if_ep(const ot_what_if *w, int ep, ot_arena *arena) {
  const ot_candidate *const best = &w->best->candidate;
  const int64_t ranks = (int64_t)best->tp * best->cp * best->dp;
  if (!w->estimator || w->job->model->moe.num_experts % ep != 0) return "";
  change x = {.value = ot_arena_format(arena, "ep %d", ep),
              .with = "all else equal",
              .part = {.ep = ep, .zero = -1},
              .fixed = fixes(w->job->given.ep, ep),
              .equal = *best};
  x.equal.ep = ep;
  if (ranks % ((int64_t)ep * best->etp) != 0) x.equal.tp = 0;
  return describe_change(w, &x, arena);
}

static ot_search_part zero_part(const ot_candidate *c, int zero) {
  return (ot_search_part){.tp = c->tp, .pp = c->pp, .cp = c->cp, .ep = c->ep, .zero = zero};
}

const char *ot_what_if_zero(const ot_what_if *w, int zero, ot_arena *arena) {
  const ot_candidate *const best = &w->best->candidate;
  const int given = w->job->given.zero;
  if (!w->estimator) return "";
  change x = {.value = ot_arena_format(arena, "zero %d and these degrees", zero),
              .with = "all else equal",
              .part = zero_part(best, zero),
              .fixed = given >= 0 && given != zero,
              .equal = *best};
  if (best->zero == 0) x.equal.dp_shard = best->dp;
  x.equal.zero = zero;
  return describe_change(w, &x, arena);
}

void ot_other_plans_choose(const ot_job *job, const ot_estimate *plan, ot_other_plans *out) {
  static const double far = 1.25;
  const ot_candidate *const best = &plan->candidate;
  const int experts = best->ep * best->etp;
  out->num = 0;
  out->below_s = far * plan->step_s;
  if (job->devices == 1) return;
#define ADD(...) out->part[out->num++] = (ot_search_part){__VA_ARGS__}
  ADD(.tp = best->tp == 1 ? 2 : 1, .zero = -1);
  if (best->tp > 2) ADD(.tp = best->tp / 2, .zero = -1);
  if (best->cp > 1) ADD(.cp = 1, .zero = -1);
  if (job->model->moe.num_experts > 0 && (best->ep > 1 || experts == 1))
    ADD(.ep = experts == 1 ? 2 : 1, .zero = -1);
  if (job->model->moe.num_experts > 0 && best->ep > 2) ADD(.ep = best->ep / 2, .zero = -1);
  ADD(.pp = best->pp == 1 ? 2 : 1, .zero = -1);
  if (best->pp > 2) ADD(.pp = best->pp / 2, .zero = -1);
  for (int zero = 0; zero <= 3 && best->dp > 1; zero++) {
    if (zero != best->zero && zero != 2) out->part[out->num++] = zero_part(best, zero);
  }
#undef ADD
  OT_ASSERT(out->num <= OT_MOST_OTHERS);
}

const char *ot_what_if_sharded(const ot_what_if *w, ot_arena *arena) {
  ot_search search;
  if (!w->estimator) return "";
  ot_job job = w->estimator->job;
  job.given.tp = job.given.pp = job.given.cp = job.given.ep = job.given.etp = 1;
  job.given.vpp = job.given.dp_shard = 0;
  job.given.pipeline = (ot_pipeline)-1;
  job.given.dp = job.devices;
  job.given.zero = 3;
  const ot_search_request request = {.job = &job, .top = 1, .estimator = w->estimator};
  if (ot_search_build(&request, arena, &search) != OT_OK) return "";
  if (search.num_plans == 0 && search.nearest.step_s > 0) {
    return ot_arena_format(arena, "needs %s", need_text(&search.nearest, arena));
  }
  if (search.num_plans == 0) {
    const char *const why = search.num_rejections > 0 ? search.rejections[0].reason : "";
    return ot_arena_format(arena, "cannot run: %s", refusal(why, arena));
  }
  const ot_estimate *const e = &search.plans[0];
  char recompute[OT_MODULES_BYTES];
  ot_candidate_print_recompute(&e->candidate, recompute, sizeof recompute);
  return ot_arena_format(
      arena,
      "takes %s with micro-batches of %lld and recompute %s, of which gathers and reductions "
      "expose %s",
      time_text(w, e, arena), (long long)e->candidate.micro_batch_size, recompute,
      ot_figure_seconds(arena, e->exposed_s[OT_TIMELINE_DP]));
}

// The best plan of `job`, which fixes the degrees of the plan.
static const char *searched(const ot_what_if *w, const char *value, const ot_job *job,
                            ot_arena *arena) {
  const ot_search_request request = {
      .job = job, .top = 1, .plans_only = true, .estimator = w->estimator};
  ot_search search;
  if (ot_search_build(&request, arena, &search) != OT_OK) return "";
  if (search.num_plans == 0)
    return ot_arena_format(arena, "; no plan with %s and these degrees fits", value);
  const char *const name = ot_arena_format(arena, "%s and these degrees", value);
  return best_text(w, name, &search.plans[0], arena);
}

// The job with the degrees and the ZeRO stage of the plan, which is of the same devices.
static ot_job with_degrees(const ot_what_if *w) {
  const ot_candidate *const best = &w->best->candidate;
  ot_job job = w->estimator->job;
  job.given.tp = best->tp;
  job.given.pp = best->pp;
  job.given.cp = best->cp;
  job.given.ep = best->ep;
  job.given.etp = best->etp;
  job.given.dp = best->dp;
  job.given.zero = best->zero;
  return job;
}

const char *ot_what_if_recompute(const ot_what_if *w, ot_recompute recompute, ot_arena *arena) {
  if (!w->estimator) return "";
  ot_job job = with_degrees(w);
  job.given.recompute = recompute;
  job.given.modules = 0;
  const char *const value = ot_arena_format(arena, "recompute %s", ot_recompute_names[recompute]);
  return searched(w, value, &job, arena);
}

const char *ot_what_if_pipeline(const ot_what_if *w, ot_pipeline pipeline, ot_arena *arena) {
  if (!w->estimator) return "";
  ot_job job = with_degrees(w);
  job.given.pipeline = pipeline;
  if (pipeline != OT_PIPELINE_INTERLEAVED) job.given.vpp = 0;
  return searched(w, ot_pipeline_name(pipeline), &job, arena);
}
