// SPDX-License-Identifier: Apache-2.0
// run: any machine. The reasons for hand-made estimates, word by word: each number in a sentence
// comes from the estimate, the memory breakdown or the limits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "advise/explain.h"
#include "base/quantity.h"
#include "describe/cluster_keys.h"
#include "files/tree_file.h"
#include "search/search.h"
#include "support/paper_job.h"

typedef struct explained {
  paper_job paper;
  ot_model_totals totals;
  ot_limits limits;
  ot_estimate best;
  ot_explanation e;
} explained;

// Llama 3.1 405B on 16,384 devices, 2,048 sequences of 8,192 tokens.
static void begin(explained *x) {
  *x = (explained){0};
  paper_job_create("llama3.1-405b", 16384, 2048, 8192, &x->paper);
  ot_model_totals_build(&x->paper.job, &x->totals);
  x->limits = (ot_limits){.crossover_devices = 11000, .critical_batch_tokens = 20e6};
  x->best = (ot_estimate){.candidate = {.tp = 8,
                                        .pp = 16,
                                        .vpp = 1,
                                        .cp = 1,
                                        .ep = 1,
                                        .etp = 1,
                                        .dp = 128,
                                        .dp_shard = 128,
                                        .zero = 1,
                                        .micro_batch_size = 1,
                                        .micro_batches = 16,
                                        .pipeline = OT_PIPELINE_1F1B,
                                        .recompute = OT_RECOMPUTE_FULL},
                          .step_s = 10,
                          .compute_s = 6,
                          .recompute_s = 1.5,
                          .update_s = 0.25,
                          .bubble_s = 3,
                          .exposed_s = {[OT_TIMELINE_TP] = 0.5, [OT_TIMELINE_DP] = 0.25},
                          .bubble_fraction = 0.3,
                          .mfu = 0.401,
                          .memory = {.stage = 2,
                                     .weights = 6000000000,
                                     .gradients = 6000000000,
                                     .optimizer = 300000000,
                                     .activations = 20000000000,
                                     .peak = 40000000000,
                                     .reserved = 42000000000,
                                     .context = 1000000000,
                                     .capacity = 80000000000},
                          .fits = true};
  x->e = (ot_explanation){
      .job = &x->paper.job, .totals = &x->totals, .limits = &x->limits, .best = &x->best};
}

static void finish(explained *x) { paper_job_destroy(&x->paper); }

static void expect(const ot_reasons *reasons, int i, const char *sentence) {
  assert_true(i < reasons->num);
  assert_string_equal(reasons->text[i], sentence);
}

static bool says(const ot_reasons *reasons, const char *part) {
  for (int i = 0; i < reasons->num; i++) {
    if (strstr(reasons->text[i], part)) return true;
  }
  return false;
}

static void the_recipe_goes_from_memory_to_exposed_time(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  x.paper.job.global_batch_size = 32768;
  ot_explain_best(&x.e, &x.paper.arena, &r);
  int i = 0;
  expect(&r, i++,
         "406B parameters x 16 bytes (weights 2, gradients 2, optimizer 12) = 6.494 TB: needs at "
         "least 82 devices, before activations");
  expect(&r, i++,
         "tp 8 over nvlink: weights and activations of a layer are sharded 8 ways; reducing "
         "activations exposes 500 ms a step on the busiest stage");
  // 8,192 tokens of 16,384 elements of 2 bytes, an eighth on each tp rank.
  expect(&r, i++,
         "pp 16 across net: stages send each other 33.55 MB a micro-batch, which exposes 0 us a "
         "step on the busiest stage; 1f1b with 16 micro-batches leaves 30.0% of the step idle "
         "((p-1)/(m+p-1) = 48.4%)");
  expect(&r, i++,
         "zero 1 over dp 128: optimizer states sharded; a device holds 6 GB of weights, 6 GB of "
         "gradients, 300 MB of optimizer; exposes 250 ms a step on the busiest stage");
  expect(&r, i++,
         "recompute full: each layer saves only its input and is recomputed, so activations take "
         "20 GB; costs 1.5 s (15.0% of the step)");
  expect(&r, i++,
         "memory: 40 GB planned, 43 GB with allocator and runtime, of 80 GB (53.8%) on stage 2, "
         "the fullest");
  expect(&r, i++,
         "batch: 32768 sequences of 8192 = 268M tokens, 1342.2% of the critical batch of 20M, as "
         "dp 128 x 16 micro-batches of 1");
  expect(&r, i++,
         "step 10 s at MFU 40.1%: 60.0% of it computes on the busiest stage, 7.5% is exposed "
         "communication, most of it tp (500 ms), dp (250 ms)");
  assert_int_equal(r.num, i);
  finish(&x);
}

static void a_batch_that_does_not_feed_the_devices_is_a_reason(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  ot_explain_best(&x.e, &x.paper.arena, &r);
  expect(&r, 1,
         "2048 sequences for 16384 devices: some devices must share a sequence (tp, cp) or its "
         "layers (pp)");
  finish(&x);
}

static void one_device_needs_no_axes(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  x.paper.job.devices = 1;
  x.best.candidate = (ot_candidate){.tp = 1,
                                    .pp = 1,
                                    .vpp = 1,
                                    .cp = 1,
                                    .ep = 1,
                                    .etp = 1,
                                    .dp = 1,
                                    .dp_shard = 1,
                                    .micro_batch_size = 1,
                                    .micro_batches = 8,
                                    .pipeline = OT_PIPELINE_1F1B};
  x.best.exposed_s[OT_TIMELINE_TP] = x.best.exposed_s[OT_TIMELINE_DP] = 0;
  ot_explain_best(&x.e, &x.paper.arena, &r);
  assert_false(says(&r, "tp 1"));
  assert_false(says(&r, "zero"));
  assert_true(says(&r, "no communication is exposed"));
  assert_true(says(&r, "recompute none: every activation is saved, 20 GB, and that fits"));
  finish(&x);
}

// A group of 8 with more devices than the innermost links join.
static void axes_across_nodes_are_explained_by_their_links(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  x.best.candidate.tp = 16;
  ot_explain_best(&x.e, &x.paper.arena, &r);
  assert_true(says(&r, "tp 16 over net"));
  finish(&x);
}

static void zb_h2_gain_with_a_barrier_is_reported(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  ot_explain_best(&x.e, &x.paper.arena, &r);
  assert_false(says(&r, "zb-h2"));
  x.best.candidate.pipeline = OT_PIPELINE_ZB_H1;
  ot_explain_best(&x.e, &x.paper.arena, &r);
  assert_true(says(&r, "zb-h2 helps only where"));
  ot_estimate h2 = x.best;
  h2.candidate.pipeline = OT_PIPELINE_ZB_H2;
  ot_explain_other(&x.e, &h2, &x.paper.arena, &r);
  assert_true(says(&r, "zb-h2 helps only where"));
  finish(&x);
}

// Largest first; compute without recompute; nothing below a thousandth of the step.
static void extra_costs_of_another_plan_are_listed_by_term(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  ot_estimate other = x.best;
  other.candidate.tp = 4;
  other.candidate.dp = other.candidate.dp_shard = 256;
  other.candidate.recompute = OT_RECOMPUTE_NONE;
  other.candidate.pipeline = OT_PIPELINE_GPIPE;
  other.step_s = 12;
  other.compute_s = 5.5;
  other.recompute_s = 0;
  other.bubble_s = 6;
  other.exposed_s[OT_TIMELINE_TP] = 0;
  other.exposed_s[OT_TIMELINE_DP] = 0.252;
  other.memory.reserved = 90000000000;
  other.fits = false;
  ot_explain_other(&x.e, &other, &x.paper.arena, &r);
  assert_int_equal(r.num, 3);
  expect(&r, 0,
         "tp 4 (8), dp 256 (128), schedule gpipe (1f1b), recompute none (full): +2 s a step "
         "(+20.0%)");
  expect(&r, 1, "bubble +3 s, recompute -1.5 s, compute +1 s, exposed tp -500 ms");
  expect(&r, 2, "memory 91 GB (43 GB): exceeds device memory");
  finish(&x);
}

static void a_plan_compared_with_itself_is_equal(void **state) {
  (void)state;
  explained x;
  ot_reasons r;
  begin(&x);
  ot_explain_other(&x.e, &x.best, &x.paper.arena, &r);
  assert_int_equal(r.num, 1);
  expect(&r, 0, "the same plan");
  finish(&x);
}

static void expect_beyond(explained *x, int num, const char *item) {
  ot_reasons beyond;
  ot_explain_beyond(&x->paper.job, &x->best.candidate, &x->paper.arena, &beyond);
  assert_int_equal(beyond.num, num);
  if (num > 0) assert_string_equal(beyond.text[num - 1], item);
}

static void features_of_no_published_run_are_named(void **state) {
  (void)state;
  explained x;
  begin(&x);
  ot_candidate *const c = &x.best.candidate;
  expect_beyond(&x, 2, "16384 devices (at most 10752)");
  x.paper.job.engine = paper_engine("megatron-core");
  x.paper.job.devices = 1024;
  expect_beyond(&x, 1, "pp 16 (at most 8)");
  c->pp = 8;
  expect_beyond(&x, 0, NULL);
  c->pipeline = OT_PIPELINE_ZB_H1;
  expect_beyond(&x, 1, "pipeline schedule zb-h1");
  c->pp = 1;
  expect_beyond(&x, 0, NULL);
  c->tp = 3;
  expect_beyond(&x, 1, "tp x cp = 3, unevenly over domains of 8");
  x.paper.cluster.device.name = "abacus";
  expect_beyond(&x, 1, "device abacus");
  x.paper.cluster.basis = OT_BASIS_MEASURED;
  expect_beyond(&x, 0, NULL);
  finish(&x);
}

static void figures_are_short(void **state) {
  (void)state;
  explained x;
  begin(&x);
  ot_arena *const a = &x.paper.arena;
  assert_string_equal(ot_figure_bytes(a, 6493654220800.0), "6.494 TB");
  assert_string_equal(ot_figure_bytes(a, 512), "512 bytes");
  assert_string_equal(ot_figure_bytes(a, 999.7e9), "999.7 GB");
  assert_string_equal(ot_figure_bytes(a, 999.96e9), "1 TB");
  assert_string_equal(ot_figure_bytes(a, 80e9), "80 GB");
  assert_string_equal(ot_figure_need(a, 91e9, 80e9), "91 GB of 80 GB");
  assert_string_equal(ot_figure_need(a, 80000000001.0, 80e9), "80.000000001 GB of 80 GB");
  assert_string_equal(ot_figure_need(a, 80e9, 80e9), "80 GB of 80 GB");
  assert_string_equal(ot_figure_count(a, 999.6), "1k");
  assert_string_equal(ot_figure_count(a, 16777216), "16.8M");
  assert_string_equal(ot_figure_seconds(a, 0.0456), "45.6 ms");
  assert_string_equal(ot_figure_seconds(a, -0.5), "-500 ms");
  assert_string_equal(ot_figure_seconds(a, 12345), "12345 s");
  assert_string_equal(ot_figure_seconds(a, 0), "0 us");
  assert_string_equal(ot_figure_flops(a, 48.2e9), "48.2 GFLOP");
  assert_string_equal(ot_figure_share(a, 0.4123), "41.2%");
  finish(&x);
}

// ---- against simulation ----

static ot_search search_of(paper_job *p, bool sharded) {
  ot_search search;
  ot_job job = p->job;
  if (sharded) {
    job.given.tp = job.given.pp = job.given.cp = job.given.ep = 1;
    job.given.zero = 3;
  }
  const ot_search_request request = {.job = &job, .top = 1};
  if (ot_search_build(&request, &p->arena, &search) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(search.num_plans, 1);
  return search;
}

// The sentence on zero 3 quotes the fastest such plan, no sentence promises hidden communication,
// and no alternative is faster than the plan.
static void expect_figures(const ot_reasons *r, const ot_estimate *sharded, ot_arena *a) {
  const char *const takes =
      ot_arena_format(a, "devices: takes %s (", ot_figure_seconds(a, sharded->step_s));
  const char *const exposed =
      ot_arena_format(a, "which gathers and reductions expose %s",
                      ot_figure_seconds(a, sharded->exposed_s[OT_TIMELINE_DP]));
  if (!says(r, takes) || !says(r, exposed)) {
    fail_msg("no \"%s\" or \"%s\" in \"%s\"", takes, exposed, r->text[1]);
  }
  assert_false(says(r, "fast enough"));
  assert_false(says(r, " hide"));
  for (int i = 0; i < r->num; i++) {
    const char *at = r->text[i];
    while ((at = strstr(at, " takes ")) != NULL) {
      at = strchr(at, '(');
      if (at[1] != '+') fail_msg("an alternative is faster: %s", r->text[i]);
    }
  }
}

static void reasons_agree_with_the_simulated_alternatives(void **state) {
  (void)state;
  static const struct {
    const char *model;
    int devices, sequences;
  } jobs[] = {{"llama3-8b", 8, 512},
              {"llama3-8b", 64, 512},
              {"llama3-8b", 512, 512},
              {"llama3-70b", 512, 2048},
              {"mixtral-8x7b", 64, 512}};
  int compared = 0;
  for (int i = 0; i < OT_COUNT(jobs); i++) {
    explained x = {0};
    ot_reasons r;
    paper_job_create(jobs[i].model, jobs[i].devices, jobs[i].sequences, 4096, &x.paper);
    ot_arena *const a = &x.paper.arena;
    ot_node *tree;
    assert_int_equal(ot_tree_load(OT_SOURCE_DIR "/presets/clusters/h100.yaml", a, &tree), OT_OK);
    assert_int_equal(ot_cluster_read(tree, a, &x.paper.cluster), OT_OK);
    x.paper.job.given =
        (ot_candidate){.zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1};
    ot_model_totals_build(&x.paper.job, &x.totals);
    const ot_search best = search_of(&x.paper, false), sharded = search_of(&x.paper, true);
    const ot_limits_request limits = {
        .job = &x.paper.job, .totals = &x.totals, .flops_per_s = 6e14};
    ot_limits_build(&limits, &x.limits);
    x.e = (ot_explanation){
        .job = &x.paper.job, .totals = &x.totals, .limits = &x.limits, .best = &best.plans[0]};
    assert_int_equal(ot_estimator_build(&x.paper.job, a, &x.e.estimator), OT_OK);
    ot_explain_best(&x.e, a, &r);
    if (best.plans[0].candidate.zero < 3) {
      expect_figures(&r, &sharded.plans[0], a);
      compared++;
    }
    finish(&x);
  }
  assert_true(compared >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_recipe_goes_from_memory_to_exposed_time),
      cmocka_unit_test(a_batch_that_does_not_feed_the_devices_is_a_reason),
      cmocka_unit_test(one_device_needs_no_axes),
      cmocka_unit_test(axes_across_nodes_are_explained_by_their_links),
      cmocka_unit_test(zb_h2_gain_with_a_barrier_is_reported),
      cmocka_unit_test(extra_costs_of_another_plan_are_listed_by_term),
      cmocka_unit_test(a_plan_compared_with_itself_is_equal),
      cmocka_unit_test(features_of_no_published_run_are_named),
      cmocka_unit_test(figures_are_short),
      cmocka_unit_test(reasons_agree_with_the_simulated_alternatives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
