// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: ranks=1..8 as threads. No audit reports a finding in a correct run. Configurations are drawn
// over families, layouts, pipeline schedules, precisions, recompute, documents, batches and
// optimizers; each runs what a user would run, with some training and its monitors. A sample of
// them; 200 with OT_TESTS=full in the environment (minutes). CLEAN=N runs only number N.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/math.h"
#include "base/rng.h"
#include "support/rank_case_models.h"
#include "support/user_audits.h"

enum { SAMPLE = 16, ALL = 200, MOST_DRAWS = 2000, SEED = 20 };

// The n-th choice of configuration `number` among `count`.
static int draw(int number, int n, int count) {
  return (int)ot_rng_below(SEED, (uint64_t)n, (uint64_t)number, (uint64_t)count);
}

// ---- a configuration ----

typedef struct degrees {
  int pp, dp_replicate, dp_shard, cp, tp;
} degrees;

static const degrees layouts[] = {
    {1, 1, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 2, 1, 1, 1}, {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2},
    {2, 1, 1, 1, 1}, {1, 2, 2, 1, 1}, {1, 1, 2, 2, 1}, {1, 1, 2, 1, 2}, {2, 1, 2, 1, 1},
    {1, 1, 1, 2, 2}, {2, 1, 1, 2, 1}, {2, 1, 1, 1, 2}, {1, 1, 4, 1, 1}, {1, 1, 1, 1, 4},
    {4, 1, 1, 1, 1}, {2, 1, 2, 1, 2}, {1, 2, 2, 1, 2}, {1, 1, 2, 2, 2}, {2, 2, 1, 2, 1},
};

static ot_model model_of(int number) {
  static const rank_model_kind kinds[] = {RANK_LLAMA, RANK_GPT2, RANK_GEMMA, RANK_GEMMA2,
                                          RANK_QWEN,  RANK_OLMO, RANK_MOE,   RANK_DROPOUT};
  const rank_model_kind kind = kinds[draw(number, 1, OT_COUNT(kinds))];
  ot_model model = rank_model(kind, 2 + draw(number, 2, 3), false);
  model.vocab_size = 300;
  model.hidden_size = 32;  // representable in the files of every family
  if (model.embedding_scale > 1) model.embedding_scale = ot_sqrt(32);
  model.initializer_range = model.initializer_range > 0.1 ? model.initializer_range : 0.05;
  if (kind != RANK_MOE) return model;
  model.moe.shared_size = 0;
  model.moe.scale = 1;
  model.moe.score = OT_MOE_SOFTMAX;
  // Weights are small here. The large epsilon that avoids near ties elsewhere would nearly cancel
  // norms, and a gradient that triples once training takes off would count as a spike.
  model.norm_epsilon = rank_model(RANK_LLAMA, 1, false).norm_epsilon;
  return model;
}

static void set_precision(int number, audit_request *r) {
  switch (draw(number, 3, 4)) {
    case 0:
      r->fp64 = true;
      break;
    case 1:
      r->bf16 = true;
      break;
    default:
      break;
  }
}

static audit_request request_of(int number) {
  const degrees d = layouts[draw(number, 4, OT_COUNT(layouts))];
  const int dp = d.dp_replicate * d.dp_shard, micro = 1 + draw(number, 5, 2);
  audit_request r = {.model = model_of(number),
                     .pp = d.pp,
                     .dp_replicate = d.dp_replicate,
                     .dp_shard = d.dp_shard,
                     .cp = d.cp,
                     .tp = d.tp,
                     .zero = draw(number, 6, 4),
                     .accumulate = draw(number, 7, 2) ? OT_ACCUMULATE_SHARDED : OT_ACCUMULATE_WHOLE,
                     .micro_batch = micro,
                     .documents = draw(number, 8, 4) > 0};
  r.batch = (int64_t)micro * dp * (d.pp > 1 ? 4 : 1 + draw(number, 9, 3));
  set_precision(number, &r);
  return r;
}

// Settings that an audit_request does not contain.
static void set_run(ot_run *run, void *context) {
  static ot_recompute selective[] = {OT_RECOMPUTE_SELECTIVE}, whole[] = {OT_RECOMPUTE_FULL};
  static const ot_pipeline orders[] = {OT_PIPELINE_1F1B, OT_PIPELINE_GPIPE, OT_PIPELINE_ZB_H1};
  const int number = *(const int *)context;
  const int recompute = draw(number, 10, 3);
  if (recompute == 1) run->parallel.recompute = selective;
  if (recompute == 2) run->parallel.recompute = whole;
  if (run->parallel.pp > 1) run->parallel.pipeline = orders[draw(number, 11, OT_COUNT(orders))];
  run->parallel.context = draw(number, 12, 2) ? OT_CONTEXT_ULYSSES : OT_CONTEXT_RING;
  run->optimizer.clip = draw(number, 13, 3) == 0 ? 0 : 0.3;
  if (draw(number, 14, 4) == 0) run->optimizer.name = OT_OPTIMIZER_MUON;
  if (draw(number, 15, 3) == 0) run->optimizer.weight_decay = 0;
  if (draw(number, 16, 3) == 0) run->learning_rate.warmup_steps = 5;
  run->data.sequence_length = draw(number, 18, 2) ? 32 : 16;
}

// ---- the run ----

static bool full(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0;
}

// True if the configuration is valid; fails the test on any finding.
static bool is_clean(int number, int *inconclusive, int *alarms) {
  const user_request request = {
      .run = request_of(number), .training_steps = 40, .planned_ranks = 64};
  user_request own = request;
  own.run.settings = set_run;
  own.run.settings_context = &number;
  own.resumes = draw(number, 19, 3) == 0;
  const user_report report = user_audits(&own);
  if (report.stage == USER_START && !strstr(report.text, "schedule:")) return false;
  *inconclusive += report.inconclusive;
  if (report.stage == USER_NOTHING) return true;
  ++*alarms;
  print_message("number %d, %s, %s, fp64 %d bf16 %d: %s: %s\n", number, own.run.model.model_type,
                audit_describe(&own.run), own.run.fp64, own.run.bf16, user_stage_name(report.stage),
                report.text);
  return true;
}

static void correct_runs_have_no_findings(void **state) {
  (void)state;
  const char *const alone = getenv("CLEAN");
  const int wanted = alone ? 1 : full() ? ALL : SAMPLE;
  int runs = 0, inconclusive = 0, alarms = 0;
  for (int i = alone ? atoi(alone) : 0; i < MOST_DRAWS && runs < wanted; i++) {
    runs += is_clean(i, &inconclusive, &alarms);
  }
  print_message("%d false alarms in %d sound configurations, %d audits inconclusive\n", alarms,
                runs, inconclusive);
  assert_int_equal(runs, wanted);
  assert_int_equal(alarms, 0);
}

static void set_etp(ot_run *run, void *context) { run->parallel.etp = *(const int *)context; }

// Expert parallelism over every axis that it folds over.
static void correct_expert_parallel_runs_have_no_findings(void **state) {
  (void)state;
  static const struct {
    degrees d;
    int ep, zero;
    bool bf16;
    int etp;
  } runs[] = {
      {{1, 1, 2, 1, 1}, 2, 1, false, 1}, {{1, 1, 4, 1, 1}, 2, 2, true, 1},
      {{1, 1, 4, 1, 1}, 4, 0, false, 1}, {{1, 2, 2, 1, 1}, 2, 3, true, 1},
      {{1, 1, 2, 1, 2}, 2, 1, false, 1}, {{1, 1, 2, 1, 2}, 4, 1, true, 1},
      {{1, 1, 2, 2, 1}, 2, 3, false, 1}, {{2, 1, 2, 1, 1}, 2, 1, false, 1},
      {{1, 1, 4, 1, 1}, 2, 1, false, 2},
  };
  for (int i = 0; i < OT_COUNT(runs); i++) {
    const degrees *const d = &runs[i].d;
    user_request request = {.training_steps = 40, .planned_ranks = 64};
    request.run = (audit_request){.model = rank_model(RANK_MOE, 2, false),
                                  .pp = d->pp,
                                  .dp_replicate = d->dp_replicate,
                                  .dp_shard = d->dp_shard,
                                  .cp = d->cp,
                                  .tp = d->tp,
                                  .ep = runs[i].ep,
                                  .zero = runs[i].zero,
                                  .bf16 = runs[i].bf16,
                                  .batch = 8,
                                  .micro_batch = 1,
                                  .documents = true};
    int etp = runs[i].etp;
    request.run.settings = set_etp;
    request.run.settings_context = &etp;
    ot_model *const model = &request.run.model;
    model->vocab_size = 300;
    model->hidden_size = 32;
    model->moe.num_experts = 8;
    model->moe.num_groups = model->moe.groups_per_token = 1;
    model->moe.shared_size = 0;
    model->moe.scale = 1;
    model->moe.score = OT_MOE_SOFTMAX;
    if (d->tp * d->cp > 1) model->moe.aux_coefficient = 0;
    const user_report report = user_audits(&request);
    if (report.stage == USER_NOTHING) continue;
    fail_msg("%s: %s: %s", audit_describe(&request.run), user_stage_name(report.stage),
             report.text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(correct_runs_have_no_findings),
      cmocka_unit_test(correct_expert_parallel_runs_have_no_findings)};
  return cmocka_run_group_tests_name("false alarms", tests, NULL, NULL);
}
