// SPDX-License-Identifier: Apache-2.0
#include "rl/rl_audit.h"

#include <math.h>

// Between a forward over packed rows and decoding against a cache, in float32 (docs/audits.md).
static const double drift_f32 = 1e-5, drift_f64 = 1e-12;

typedef struct watch {
  ot_rewarder *rewarder;  // null: rewards are not judged again
  int64_t group;
  ot_status status;
  int64_t updates, wrong_rewards, wrong_advantages;
  double log_ratio;
  ot_rl_ratios sums;
} watch;

// ---- responses ----

static void judge_again(watch *w, const ot_rl_answer *answer) {
  ot_rl_answer again = *answer;
  const ot_status status = ot_rewarder_judge(w->rewarder, &again);
  if (status != OT_OK) w->status = status;
  w->wrong_rewards += status == OT_OK && again.reward != answer->reward;
}

// Groups by the numbers of the responses, which nothing can change.
static void compare_advantages(watch *w, ot_rl_answer *const *answers, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    double sum = 0, others = 0;
    for (int64_t k = 0; k < count; k++) {
      if (k == i || answers[k]->id / w->group != answers[i]->id / w->group) continue;
      sum += answers[k]->reward;
      others++;
    }
    const double expected = others > 0 ? answers[i]->reward - sum / others : 0;
    w->wrong_advantages += fabs(answers[i]->advantage - expected) > 1e-9 * (1 + fabs(sum));
  }
}

static void check_update(void *context, const ot_rl_event *event) {
  watch *const w = context;
  if (event->kind == OT_RL_EVENT_BATCH) {
    for (int64_t i = 0; w->rewarder && i < event->num_answers; i++) {
      judge_again(w, event->answers[i]);
    }
    compare_advantages(w, event->answers, event->num_answers);
  }
  if (event->kind != OT_RL_EVENT_UPDATE) return;
  w->updates++;
  w->log_ratio += event->update->policy.log_ratio;
  w->sums.lag += event->lag;
  w->sums.ess += event->update->policy.ess;
  w->sums.kl += event->update->policy.kl;
}

// ---- runs ----

typedef struct audited {
  const ot_run *run;  // of `updates` updates
  const ot_rl_faults *faults;
  ot_arena *arena;
  ot_rl_audit *out;
  ot_tokenizer *tokenizer;
} audited;

static void find(audited *a, const char *text) { a->out->findings[a->out->num_findings++] = text; }

static ot_status play(audited *a, const ot_run *run, watch *w, ot_rl_summary **summary) {
  const ot_rl_request request = {.run = run,
                                 .compare_weights = true,
                                 .faults = *a->faults,
                                 .sink = check_update,
                                 .context = w};
  w->group = run->rl.group;
  *summary = ot_arena_take(a->arena, sizeof **summary);
  OT_TRY(ot_rl_run(&request, a->arena, *summary));
  return w->status;
}

static ot_status check_drift(audited *a) {
  ot_run frozen = *a->run;
  frozen.optimizer.lr = frozen.learning_rate.min = 0;
  frozen.optimizer.num_groups = 0;
  watch w = {0};
  ot_rl_summary *summary;
  OT_TRY(play(a, &frozen, &w, &summary));
  a->out->drift = w.log_ratio / (double)w.updates;
  a->out->drift_bound = frozen.precision.compute == OT_F64 ? drift_f64 : drift_f32;
  if (!(a->out->drift > a->out->drift_bound)) return OT_OK;
  find(a, ot_arena_format(a->arena,
                          "drift: with equal weights, generators and trainer differ by %.2g nats a "
                          "token on average; allowed: %.2g",
                          a->out->drift, a->out->drift_bound));
  return OT_OK;
}

static ot_status check_run(audited *a) {
  watch w = {0};
  ot_rl_summary *summary;
  const ot_reward kind = a->run->rl.reward;
  if (kind != OT_REWARD_COMMAND && kind != OT_REWARD_ANSWER_LOGPROB) {
    OT_TRY(ot_rewarder_create(&a->run->rl, a->tokenizer, &w.rewarder));
  }
  const ot_status status = play(a, a->run, &w, &summary);
  ot_rewarder_destroy(&w.rewarder);
  OT_TRY(status);
  if (summary->wrong_weights > 0) {
    find(a, ot_arena_format(a->arena,
                            "weights: after taking the trainer's, generators had %lld parameters "
                            "that differ",
                            (long long)summary->wrong_weights));
  }
  if (w.wrong_rewards > 0) {
    find(a, ot_arena_format(a->arena, "rewards: %lld responses have another one when judged again",
                            (long long)w.wrong_rewards));
  }
  if (w.wrong_advantages == 0) return OT_OK;
  find(a, ot_arena_format(a->arena,
                          "advantages: %lld responses have one that is not their reward less the "
                          "mean of the others of their group",
                          (long long)w.wrong_advantages));
  return OT_OK;
}

static ot_status measure_cache(audited *a, bool recompute, ot_rl_ratios *out) {
  ot_run run = *a->run;
  run.rl.recompute = recompute;
  watch w = {0};
  ot_rl_summary *summary;
  OT_TRY(play(a, &run, &w, &summary));
  const double n = (double)w.updates;
  *out = (ot_rl_ratios){w.sums.lag / n, w.sums.ess / n, w.sums.kl / n};
  return OT_OK;
}

ot_status ot_rl_audit_run(const ot_run *run, int64_t updates, const ot_rl_faults *faults,
                          ot_arena *arena, ot_rl_audit *out) {
  static const ot_rl_faults none = {0};
  ot_run short_run = *run;
  short_run.steps = updates;
  *out = (ot_rl_audit){0};
  OT_TRY(ot_rl_check(run));
  OT_CHECK(ot_run_storage(&run->precision) != OT_BF16, OT_USAGE,
           "precision: the audit of rl needs fp32 or fp64 (try --set precision.compute=fp32)");
  audited a = {.run = &short_run, .faults = faults ? faults : &none, .arena = arena, .out = out};
  OT_TRY(ot_tokenizer_create(run->data.tokenizer, &a.tokenizer));
  ot_status status = check_drift(&a);
  if (status == OT_OK) status = check_run(&a);
  if (status == OT_OK) status = measure_cache(&a, false, &out->kept);
  if (status == OT_OK) status = measure_cache(&a, true, &out->recomputed);
  ot_tokenizer_destroy(&a.tokenizer);
  return status;
}
