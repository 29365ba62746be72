// SPDX-License-Identifier: Apache-2.0
// Prices changed candidates one by one.
#include "plan/what_if.h"

#include "base/quantity.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "plan/estimator.h"
#include "plan/explain.h"
#include "plan/pools.h"
#include "plan/search.h"

enum { TOLD_TERMS = 2 };  // terms listed per alternative

// Adapts `c` to its new dp: whole micro-batches, and states sharded over all of dp if they were.
static void fit(const ot_what_if *w, ot_candidate *c) {
  const ot_candidate *const best = &w->best->candidate;
  const bool all = best->dp_shard == best->dp || c->dp % best->dp_shard != 0;
  if (all) c->dp_shard = c->dp;
  if (ot_pools_check(w->job, c) != OT_OK) ot_candidate_cross(w->job, c);
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

// Estimates `c` and describes it as `name`.
static const char *tell(const ot_what_if *w, const char *name, const ot_candidate *c,
                        ot_arena *arena) {
  ot_estimate e;
  if (ot_candidate_check(w->job, c) != OT_OK) {
    return ot_arena_format(arena, "; %s cannot run: %s", name, refusal(ot_fail_message(), arena));
  }
  if (ot_estimate_build(w->estimator, c, &e) != OT_OK) return "";
  if (!e.fits) return ot_arena_format(arena, "; %s needs %s", name, need_text(&e, arena));
  return ot_arena_format(arena, "; %s takes %s", name, time_text(w, &e, arena));
}

static const char *traded_name(const char *axis, int ways, const ot_candidate *c, ot_arena *arena) {
  return ot_arena_format(arena, "%s %d with dp %d", axis, ways, c->dp);
}

const char *ot_what_if_tp(const ot_what_if *w, int tp, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator || !trade(&c, c.tp, tp)) return "";
  c.tp = tp;
  fit(w, &c);
  return tell(w, traded_name("tp", tp, &c, arena), &c, arena);
}

const char *ot_what_if_pp(const ot_what_if *w, int pp, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator || !trade(&c, c.pp, pp)) return "";
  if (c.pp == 1 || pp == 1) {
    c.pipeline = OT_PIPELINE_1F1B;
    c.vpp = 1;
  }
  c.pp = pp;
  fit(w, &c);
  return tell(w, traded_name("pp", pp, &c, arena), &c, arena);
}

const char *ot_what_if_cp(const ot_what_if *w, int cp, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator || !trade(&c, c.cp, cp)) return "";
  c.cp = cp;
  fit(w, &c);
  return tell(w, traded_name("cp", cp, &c, arena), &c, arena);
}

const char *ot_what_if_ep(const ot_what_if *w, int ep, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  const int64_t ranks = (int64_t)c.tp * c.cp * c.dp, experts = w->job->model->moe.num_experts;
  if (!w->estimator || experts % ep != 0 || ranks % ((int64_t)ep * c.etp) != 0) return "";
  c.ep = ep;
  return tell(w, ot_arena_format(arena, "ep %d", ep), &c, arena);
}

const char *ot_what_if_zero(const ot_what_if *w, int zero, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator) return "";
  if (c.zero == 0) c.dp_shard = c.dp;
  c.zero = zero;
  return tell(w, ot_arena_format(arena, "zero %d", zero), &c, arena);
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
  const ot_search_request request = {
      .job = &job, .top = 1, .scratch = ot_estimator_scratch(w->estimator)};
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

const char *ot_what_if_recompute(const ot_what_if *w, ot_recompute recompute, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator) return "";
  c.recompute = recompute;
  c.modules = 0;
  return tell(w, ot_recompute_names[recompute], &c, arena);
}

const char *ot_what_if_pipeline(const ot_what_if *w, ot_pipeline pipeline, ot_arena *arena) {
  ot_candidate c = w->best->candidate;
  if (!w->estimator) return "";
  c.pipeline = pipeline;
  if (pipeline != OT_PIPELINE_INTERLEAVED) c.vpp = 1;
  return tell(w, ot_pipeline_name(pipeline), &c, arena);
}
