// SPDX-License-Identifier: Apache-2.0
// run: any machine. Estimates against the schedules that training would run: times against the
// simulator, memory against the arena.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "describe/pipeline_rules.h"
#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "forecast/prediction.h"
#include "host/heap.h"
#include "runtime/model_runtime.h"
#include "runtime/training_request.h"
#include "search/bound.h"
#include "support/paper_job.h"
#include "support/tiny_model.h"
#include "train/trainer.h"

typedef struct estimate_case {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_cluster cluster;
  ot_job job;
  ot_estimator *estimator;
} estimate_case;

static void create(const ot_model *model, const char *recipe, const ot_candidate *c,
                   estimate_case *out) {
  *out = (estimate_case){.model = *model};
  out->arena = ot_heap_arena_create(&out->heap);
  const int devices = c->tp * c->pp * c->cp * c->dp;
  out->cluster = paper_machine(devices);
  out->job = (ot_job){.model = &out->model,
                      .cluster = &out->cluster,
                      .engine = &ot_engine_orthant,
                      .recipe = *ot_recipe_find(recipe),
                      .devices = devices,
                      .global_batch_size = c->micro_batch_size * c->micro_batches * c->dp,
                      .sequence_length = 48};
  if (ot_estimator_build(&out->job, &out->arena, &out->estimator) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
}

static void destroy(estimate_case *c) { ot_heap_release(&c->heap); }

static ot_candidate candidate_of(ot_candidate c) {
  if (c.tp == 0) c.tp = 1;
  if (c.pp == 0) c.pp = 1;
  if (c.vpp == 0) c.vpp = 1;
  if (c.cp == 0) c.cp = 1;
  if (c.dp == 0) c.dp = 1;
  if (c.dp_shard == 0) c.dp_shard = c.dp;
  if (c.micro_batch_size == 0) c.micro_batch_size = 2;
  if (c.micro_batches == 0) c.micro_batches = 4;
  if (c.ep == 0) c.ep = 1;
  if (c.etp == 0) c.etp = 1;
  return c;
}

// Expects the maximum over all stages and tp ranks.
static void expect_bill(estimate_case *e, const ot_run *run, const ot_mesh *mesh,
                        const ot_estimate *estimate, const char *text) {
  ot_memory_breakdown most = {.peak_bytes = -1};
  for (int i = 0; i < mesh->ranks; i++) {
    ot_graph graphs[OT_MODES];
    ot_schedule schedule;
    ot_rank_request wanted;
    assert_int_equal(ot_training_request(run, mesh, i, &e->arena, &wanted), OT_OK);
    if (!e->cluster.device.packs) wanted.graph.backend = OT_BACKEND_CUDA;
    wanted.graph.threads = 1;
    assert_int_equal(ot_runtime_plan(&wanted, &e->arena, graphs, &schedule), OT_OK);
    if (schedule.memory.peak_bytes > most.peak_bytes) most = schedule.memory;
  }
  const ot_memory_estimate *const m = &estimate->memory;
  const int64_t found[] = {m->weights,     m->gradients, m->optimizer,
                           m->activations, m->gathered,  m->buffers};
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    if (found[i] == most.class_bytes[i]) continue;
    fail_msg("%s: %s need %lld bytes, in the schedule %lld", text,
             ot_memory_class_name((ot_memory_class)i), (long long)found[i],
             (long long)most.class_bytes[i]);
  }
  assert_int_equal(m->peak, most.peak_bytes);
  assert_int_equal(m->reserved, m->peak);
}

static void expect_time(const ot_estimate *estimate, double simulated_s, const char *text) {
  const double error = estimate->step_s / simulated_s - 1;
  if (error < -1e-9 || error > 1e-9) {
    fail_msg("%s: %.9g s, simulated %.9g, %+.6f %%", text, estimate->step_s, simulated_s,
             100 * error);
  }
  double sum_s = estimate->compute_s + estimate->update_s + estimate->bubble_s + estimate->host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sum_s += estimate->exposed_s[i];
  if (sum_s < estimate->step_s * (1 - 1e-9) || sum_s > estimate->step_s * (1 + 1e-9)) {
    fail_msg("%s: %.9g s, the sum of the terms is %.9g", text, estimate->step_s, sum_s);
  }
}

static void expect_bound(estimate_case *e, const ot_estimate *estimate, const char *text) {
  ot_estimate_bound bound;
  const ot_bound_request deepest = {.candidate = &estimate->candidate, .depth = OT_BOUND_ORDER};
  assert_int_equal(ot_bound_build(e->estimator, &deepest, &bound), OT_OK);
  if (bound.step_s <= 0 || bound.step_s > estimate->step_s * (1 + 1e-9)) {
    fail_msg("%s: bound %.9g s, estimate %.9g", text, bound.step_s, estimate->step_s);
  }
  if (bound.peak <= 0 || bound.peak > estimate->memory.peak) {
    fail_msg("%s: bound %lld bytes, estimate %lld", text, (long long)bound.peak,
             (long long)estimate->memory.peak);
  }
}

// The run keeps gathered weights of some blocks, prefetches far ahead, and uses Ulysses.
static void set_run(ot_run *run) {
  static bool reshard[] = {false, true, false, true, true, false, true, true, true};
  assert_int_equal(run->model.num_layers + 2, OT_COUNT(reshard));
  run->parallel.prefetch = 3;
  run->parallel.reshard = reshard;
  run->parallel.num_reshard = OT_COUNT(reshard);
  run->parallel.context = OT_CONTEXT_ULYSSES;
}

static void set_muon(ot_run *run) { run->optimizer.name = OT_OPTIMIZER_MUON; }

typedef struct comparison {
  const ot_model *model;
  const char *recipe;
  void (*set)(ot_run *run);  // null: no run is given
  bool accelerator;          // instead of the host
} comparison;

static void compare_as(comparison how, ot_candidate c) {
  estimate_case e;
  ot_run_lists given_lists;
  ot_run given;
  char text[256];
  ot_estimate estimate;
  ot_run_lists lists;
  ot_run run;
  ot_mesh mesh;
  ot_prediction p;
  c = candidate_of(c);
  create(how.model, how.recipe, &c, &e);
  e.cluster.device.packs = !how.accelerator;
  if (how.set) {
    ot_candidate_run(&e.job, &c, &given_lists, &given);
    how.set(&given);
    e.job.run = &given;
  }
  assert_int_equal(ot_estimator_build(&e.job, &e.arena, &e.estimator), OT_OK);
  ot_candidate_print(&c, text, sizeof text);
  if (ot_candidate_check(&e.job, &c) != OT_OK) fail_msg("%s: %s", text, ot_fail_message());
  if (ot_estimate_build(e.estimator, &c, &estimate) != OT_OK) {
    fail_msg("%s: %s", text, ot_fail_message());
  }
  ot_candidate_run(&e.job, &c, &lists, &run);
  assert_int_equal(ot_mesh_build(&run.parallel, e.job.devices, &mesh), OT_OK);
  const ot_prediction_request wanted = {
      .run = &run, .mesh = &mesh, .cluster = &e.cluster, .threads = 1};
  if (ot_prediction_build(&wanted, &e.arena, &p) != OT_OK) {
    fail_msg("%s: %s", text, ot_fail_message());
  }
  expect_time(&estimate, p.steps[0].expected.step_s, text);
  expect_bill(&e, &run, &mesh, &estimate, text);
  const int64_t context = how.accelerator ? ot_engine_orthant.context_bytes : 0;
  assert_int_equal(estimate.memory.context, context);
  expect_bound(&e, &estimate, text);
  destroy(&e);
}

static void compare_in(const ot_model *model, const char *recipe, ot_candidate c) {
  compare_as((comparison){.model = model, .recipe = recipe}, c);
}

static void compare(const ot_model *model, ot_candidate c) { compare_in(model, "fp32", c); }

static ot_model wider(ot_model model, int layers) {
  model.num_layers = layers;
  model.hidden_size = 32;
  model.intermediate_size = 64;
  model.num_heads = 4;
  model.num_kv_heads = model.num_kv_heads == 3 ? 4 : 2;
  return model;
}

static ot_model gpt2(void) { return wider(tiny_gpt2(), 6); }
static ot_model llama(void) { return wider(tiny_llama(), 7); }

static ot_model experts(bool tied) {
  const ot_model model = llama();
  return tiny_experts(&model, tied);
}

static void one_stage_estimate_matches_its_schedule(void **state) {
  (void)state;
  const ot_model tied = gpt2(), plain = llama();
  compare(&tied, (ot_candidate){.micro_batches = 1});
  compare(&tied, (ot_candidate){.recompute = OT_RECOMPUTE_FULL});
  compare(&plain, (ot_candidate){.recompute = OT_RECOMPUTE_SELECTIVE});
  compare(&plain, (ot_candidate){.pipeline = OT_PIPELINE_ZB_H1});
  compare(&plain, (ot_candidate){.pipeline = OT_PIPELINE_INTERLEAVED, .vpp = 2});
  compare(&plain, (ot_candidate){.tp = 2});
  compare(&tied, (ot_candidate){.tp = 4});
  compare(&plain, (ot_candidate){.cp = 2});
  const ot_model windows = wider(tiny_gemma(), 5);
  compare(&windows, (ot_candidate){.micro_batches = 3, .recompute = OT_RECOMPUTE_FULL});
}

static void data_parallel_estimates_match_their_schedules(void **state) {
  (void)state;
  const ot_model tied = gpt2(), plain = llama();
  for (int zero = 0; zero <= 3; zero++) {
    compare(&plain, (ot_candidate){.dp = 2, .zero = zero, .pipeline = OT_PIPELINE_1F1B});
    compare(&tied, (ot_candidate){.dp = 2, .zero = zero});
    compare(&tied, (ot_candidate){.dp = 4, .zero = zero, .dp_shard = 2, .tp = 2});
  }
  compare(&plain, (ot_candidate){.dp = 2, .zero = 3, .recompute = OT_RECOMPUTE_FULL});
  compare(&plain, (ot_candidate){.dp = 4, .zero = 3, .micro_batches = 8, .micro_batch_size = 1});
}

static void muon_estimates_match_their_schedules(void **state) {
  (void)state;
  const ot_model tied = gpt2(), plain = llama();
  const comparison one = {&plain, "bf16-fp32-gradients", set_muon, 0},
                   two = {&tied, "fp32", set_muon, 0};
  compare_as(one, (ot_candidate){.dp = 2});
  compare_as(one, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B});
  compare_as(two, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_ZB_V, .dp = 2});
}

// Only a few of many micro-batches are replayed.
static void estimates_of_many_micro_batches_match_their_schedules(void **state) {
  (void)state;
  const ot_model tied = gpt2(), plain = llama();
  for (int zero = 2; zero <= 3; zero++) {
    compare(&tied, (ot_candidate){
                       .dp = 2, .zero = zero, .pipeline = OT_PIPELINE_1F1B, .micro_batches = 23});
    compare(&plain, (ot_candidate){.dp = 4,
                                   .dp_shard = 2,
                                   .zero = zero,
                                   .pipeline = OT_PIPELINE_ZB_H1,
                                   .recompute = OT_RECOMPUTE_FULL,
                                   .micro_batches = 40});
  }
}

static void stage_estimates_match_their_schedules(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {
      OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_INTERLEAVED, OT_PIPELINE_ZB_H1,
      OT_PIPELINE_ZB_H2, OT_PIPELINE_ZB_V, OT_PIPELINE_DUALPIPE_V};
  const ot_model tied = gpt2(), plain = llama();
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    const int vpp = kinds[i] == OT_PIPELINE_INTERLEAVED ? 2 : 1;
    compare(&plain, (ot_candidate){.pp = 2, .vpp = vpp, .pipeline = kinds[i]});
    compare(&tied, (ot_candidate){.pp = 2, .vpp = vpp, .pipeline = kinds[i], .micro_batches = 8});
    if (ot_pipeline_rules_of(kinds[i])->min_chunks > 1) continue;
    compare(&plain, (ot_candidate){.pp = 4, .pipeline = kinds[i], .micro_batches = 16});
  }
  compare(&tied, (ot_candidate){.pp = 2, .vpp = 3, .pipeline = OT_PIPELINE_INTERLEAVED});
  compare(&plain,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .recompute = OT_RECOMPUTE_FULL});
  compare(&tied, (ot_candidate){.pp = 4,
                                .pipeline = OT_PIPELINE_1F1B,
                                .recompute = OT_RECOMPUTE_SELECTIVE,
                                .micro_batches = 9});
  compare(&tied, (ot_candidate){.pp = 2,
                                .pipeline = OT_PIPELINE_ZB_V,
                                .recompute = OT_RECOMPUTE_FULL,
                                .micro_batches = 8});
}

static void estimates_of_composed_splits_match_their_schedules(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_ZB_H1,
                                      OT_PIPELINE_ZB_V, OT_PIPELINE_DUALPIPE_V};
  const ot_model tied = gpt2(), plain = llama();
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    compare(&tied,
            (ot_candidate){.pp = 2, .pipeline = kinds[i], .dp = 2, .zero = 3, .micro_batches = 3});
    compare(&plain,
            (ot_candidate){.pp = 2, .pipeline = kinds[i], .dp = 4, .zero = 2, .dp_shard = 2});
  }
  compare(&tied,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 1, .tp = 2});
  compare(&plain,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 3, .tp = 2});
  compare(&tied,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 2, .cp = 2});
  compare(&plain, (ot_candidate){
                      .pp = 2, .vpp = 2, .pipeline = OT_PIPELINE_INTERLEAVED, .dp = 2, .zero = 3});
}

// A layer has two blocks; the shard of its experts' ranks is a separate part of the stage.
static void expert_parallel_estimates_match_their_schedules(void **state) {
  (void)state;
  const ot_model tied = experts(true), plain = experts(false);
  for (int zero = 0; zero <= 3; zero++) {
    compare(&plain, (ot_candidate){.dp = 2, .ep = 2, .zero = zero});
    compare(&tied, (ot_candidate){.dp = 4, .ep = 2, .zero = zero});
    compare(&plain, (ot_candidate){.dp = 4, .dp_shard = 2, .ep = 4, .zero = zero});
    compare(&tied, (ot_candidate){.dp = 4, .dp_shard = 2, .ep = 2, .zero = zero});
    compare(&plain, (ot_candidate){.tp = 2, .dp = 2, .ep = 2, .zero = zero});
    compare(&tied, (ot_candidate){.cp = 2, .dp = 2, .ep = 4, .zero = zero});
    compare(&plain, (ot_candidate){.tp = 2, .cp = 2, .ep = 2, .zero = zero});
    compare(&plain, (ot_candidate){.dp = 4, .ep = 2, .etp = 2, .zero = zero});
    compare(&tied, (ot_candidate){.tp = 2, .dp = 2, .etp = 2, .zero = zero});
  }
  compare(&tied, (ot_candidate){.dp = 4, .ep = 2, .zero = 3, .recompute = OT_RECOMPUTE_FULL});
  compare(&plain, (ot_candidate){.dp = 2, .ep = 2, .recompute = OT_RECOMPUTE_SELECTIVE});
  compare(&plain, (ot_candidate){.tp = 2, .cp = 2, .ep = 4, .micro_batch_size = 1});
  compare(&plain, (ot_candidate){.dp = 8, .ep = 8, .zero = 2, .pipeline = OT_PIPELINE_ZB_H1});
  compare(&tied, (ot_candidate){.dp = 2, .ep = 2, .zero = 3, .micro_batches = 23});
  compare(&plain, (ot_candidate){.dp = 4, .ep = 4, .zero = 2, .micro_batches = 23});
}

static void estimates_of_detailed_runs_match_their_schedules(void **state) {
  (void)state;
  const ot_model plain = llama(), spread = experts(false);
  const comparison dense = {&plain, "fp32", set_run, 0}, moe = {&spread, "fp32", set_run, 0};
  compare_as(dense, (ot_candidate){.dp = 2, .cp = 2, .zero = 3});
  compare_as(dense, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 3});
  compare_as(moe, (ot_candidate){.dp = 4, .ep = 2, .zero = 3});
  compare_as(moe, (ot_candidate){.dp = 2, .cp = 2, .ep = 2, .zero = 3, .micro_batches = 2});
  compare_as(moe,
             (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .ep = 2, .zero = 3});
}

// The next of some small random numbers.
static int draw(uint64_t *draws, int bound) {
  return (int)ot_rng_below(77, 0, (*draws)++, (uint64_t)bound);
}

static ot_candidate draw_candidate(uint64_t *n) {
  ot_candidate c = {.tp = 1 << draw(n, 3),
                    .cp = 1 << draw(n, 2),
                    .pp = 1 + draw(n, 4),
                    .dp = 1 << draw(n, 4),
                    .dp_shard = 1 << draw(n, 4),
                    .ep = 1 << draw(n, 4),
                    .etp = 1 << draw(n, 2),
                    .zero = draw(n, 4),
                    .recompute = (ot_recompute)draw(n, 3),
                    .pipeline = (ot_pipeline)draw(n, 6),
                    .micro_batches = 1 + draw(n, 9),
                    .micro_batch_size = 1 + draw(n, 2)};
  c.vpp = c.pipeline == OT_PIPELINE_INTERLEAVED ? 2 : 1;
  return candidate_of(c);
}

static bool can_run(const ot_model *model, const ot_candidate *c) {
  estimate_case e;
  create(model, "fp32", c, &e);
  const bool can = ot_candidate_check(&e.job, c) == OT_OK;
  destroy(&e);
  return can;
}

static void estimates_of_any_expert_split_match_their_schedules(void **state) {
  (void)state;
  enum { CASES = 40, MOST_RANKS = 24 };
  static const char *const recipes[] = {"fp32", "bf16-fp32-gradients", "bf16", "bf16-bf16-moments"};
  uint64_t draws = 0;
  for (int i = 0; i < CASES;) {
    const ot_model model = experts(draw(&draws, 2) == 0);
    const ot_candidate c = draw_candidate(&draws);
    if (c.tp * c.cp * c.pp * c.dp > MOST_RANKS || c.ep * c.etp == 1) continue;
    if (!can_run(&model, &c)) continue;
    compare_in(&model, recipes[draw(&draws, OT_COUNT(recipes))], c);
    i++;
  }
}

// A machine on which only GEMMs take time, so a step can be computed by hand.
static double step_with(const ot_model *model, double imbalance, ot_candidate c) {
  estimate_case e;
  ot_estimate estimate;
  create(model, "fp32", &c, &e);
  e.cluster.device.launch_s = 0;
  e.cluster.device.memory_bytes_per_s = e.cluster.device.other_flops_per_s = 1e40;
  for (int i = 0; i < e.cluster.num_levels; i++) {
    e.cluster.level[i].bytes_per_s = 1e40;
    e.cluster.level[i].latency_s = 0;
  }
  e.job.expert_imbalance = imbalance;
  assert_int_equal(ot_estimator_build(&e.job, &e.arena, &e.estimator), OT_OK);
  assert_int_equal(ot_estimate_build(e.estimator, &c, &estimate), OT_OK);
  destroy(&e);
  return estimate.step_s;
}

// 2 sequences of 48 tokens choose 3 experts each: 288 rows arrive at each of 4 ranks, with 2
// experts of 24 x 32. One pass runs 3 GEMMs forward (gate, up, down). Input gradients recompute
// gate and up, then need those of down, gate and up (5). Weight gradients recompute gate, up and
// the activation's gradient and add three weight GEMMs (6). Rows of an expert are padded to a
// multiple of 8, by 3.5 on average, except in weight GEMMs. 7 layers, 4 micro-batches.
static void overflow_passes_cost_their_loop_bodies(void **state) {
  (void)state;
  const ot_model model = experts(true);
  const ot_candidate c = candidate_of((ot_candidate){.dp = 4, .ep = 4, .zero = 1});
  const double even_s = step_with(&model, 1, c);
  const double product = 2 * 24 * 32, padding = 2 * 3.5;
  const double round_s = product * ((3 + 5 + 3) * (288 + padding) + 3 * 288) / 3e10;
  // X and overflow passes, with a buffer for 1.25 balanced loads; 8/3 is the worst case.
  static const double expected[][2] = {{1.25, 0}, {1.3, 1}, {2.5, 1}, {2.6, 2}, {100, 2}};
  for (int i = 0; i < OT_COUNT(expected); i++) {
    const double more_s = step_with(&model, expected[i][0], c) - even_s;
    const double by_hand_s = expected[i][1] * 7 * 4 * round_s;
    if (more_s < by_hand_s - 1e-9 * even_s || more_s > by_hand_s + 1e-9 * even_s) {
      fail_msg("X %g: %.9g s more, by hand %.9g", expected[i][0], more_s, by_hand_s);
    }
  }
}

// Summed over all ranks, the same tokens go to the same experts in any layout.
static void remote_experts_are_the_same_work(void **state) {
  (void)state;
  const ot_model model = experts(false);
  double flops[2];
  for (int i = 0; i < 2; i++) {
    estimate_case e;
    ot_estimate estimate;
    const ot_candidate c = candidate_of((ot_candidate){.dp = 4, .tp = 2, .ep = i == 0 ? 1 : 4});
    create(&model, "fp32", &c, &e);
    assert_int_equal(ot_estimate_build(e.estimator, &c, &estimate), OT_OK);
    flops[i] = estimate.model_flops;
    destroy(&e);
  }
  assert_true(flops[0] > 0 && flops[1] > flops[0] * (1 - 1e-9) && flops[1] < flops[0] * (1 + 1e-9));
}

static void expert_estimates_of_stages_match_their_schedules(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {
      OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_INTERLEAVED, OT_PIPELINE_ZB_H1,
      OT_PIPELINE_ZB_H2, OT_PIPELINE_ZB_V, OT_PIPELINE_DUALPIPE_V};
  const ot_model tied = experts(true), plain = experts(false);
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    const int vpp = kinds[i] == OT_PIPELINE_INTERLEAVED ? 2 : 1;
    const ot_candidate two = {.pp = 2, .vpp = vpp, .pipeline = kinds[i], .dp = 2, .ep = 2};
    for (int zero = 0; zero <= 3; zero++) {
      ot_candidate c = two;
      c.zero = zero;
      c.recompute = zero % 2 == 0 ? OT_RECOMPUTE_NONE : OT_RECOMPUTE_FULL;
      compare(zero % 2 == 0 ? &tied : &plain, c);
    }
  }
  compare(&tied, (ot_candidate){
                     .pp = 3, .pipeline = OT_PIPELINE_1F1B, .tp = 2, .dp = 2, .ep = 4, .zero = 3});
  compare(&plain,
          (ot_candidate){.pp = 4, .pipeline = OT_PIPELINE_ZB_H1, .cp = 2, .ep = 2, .zero = 2});
  compare(&tied,
          (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .tp = 2, .ep = 2, .zero = 3});
}

// Attention Residuals with `block_size` sub-layers per block.
static ot_model mixed(ot_model model, int block_size) {
  model.residuals.block_size = block_size;
  model.residuals.sublayers = 2 * model.num_layers;
  for (int i = 0; i < model.num_layers; i++) model.residuals.place[i] = 2 * i;
  return model;
}

// Activations at stage boundaries grow from stage to stage and are copied before each.
static void stack_estimates_of_stages_match_their_schedules(void **state) {
  (void)state;
  static const ot_pipeline kinds[] = {
      OT_PIPELINE_GPIPE, OT_PIPELINE_1F1B, OT_PIPELINE_INTERLEAVED, OT_PIPELINE_ZB_H1,
      OT_PIPELINE_ZB_H2, OT_PIPELINE_ZB_V, OT_PIPELINE_DUALPIPE_V};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    const int vpp = kinds[i] == OT_PIPELINE_INTERLEAVED ? 2 : 1;
    for (int block = 1; block <= 5; block++) {
      const ot_model model = mixed(block % 2 == 0 ? gpt2() : llama(), block);
      const ot_recompute recompute = (ot_recompute)(block % 3);
      compare(&model,
              (ot_candidate){.pp = 2, .vpp = vpp, .pipeline = kinds[i], .recompute = recompute});
      if (ot_pipeline_rules_of(kinds[i])->min_chunks > 1) continue;
      compare(&model,
              (ot_candidate){
                  .pp = 4, .pipeline = kinds[i], .micro_batches = 8, .recompute = recompute});
    }
  }
}

static void stack_estimates_of_other_splits_match_their_schedules(void **state) {
  (void)state;
  const ot_model tied = mixed(gpt2(), 3), plain = mixed(llama(), 4);
  const ot_model spread = mixed(experts(false), 3);
  compare(&plain, (ot_candidate){.recompute = OT_RECOMPUTE_SELECTIVE});
  compare(&tied, (ot_candidate){.tp = 4});
  compare(&plain, (ot_candidate){.cp = 2, .recompute = OT_RECOMPUTE_FULL});
  for (int zero = 0; zero <= 3; zero++) {
    compare(&tied, (ot_candidate){.dp = 4, .zero = zero, .dp_shard = 2, .tp = 2});
    compare(&plain,
            (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_ZB_H1, .dp = 2, .zero = zero, .tp = 2});
    compare(&spread,
            (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .ep = 2, .zero = zero});
  }
  compare_in(&plain, "bf16-fp32-gradients",
             (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B, .dp = 2, .zero = 3});
  compare(&plain, (ot_candidate){.dp = 2, .zero = 3, .micro_batches = 23});
}

static void other_frameworks_have_no_stack(void **state) {
  (void)state;
  estimate_case e;
  const ot_model plain = llama(), model = mixed(plain, 3);
  const ot_candidate c = candidate_of((ot_candidate){.pp = 2});
  create(&plain, "fp32", &c, &e);
  e.model = model;
  e.job.engine = paper_engine("megatron-core");
  assert_non_null(e.job.engine);
  assert_int_equal(ot_estimator_build(&e.job, &e.arena, &e.estimator), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "attention_residuals"));
  destroy(&e);
}

// bf16 storage halves the bytes; the second recipe also stores gradients in bf16.
static void bf16_estimates_match_their_schedules(void **state) {
  (void)state;
  static const char *const recipes[] = {"bf16-fp32-gradients", "bf16"};
  const ot_model tied = gpt2(), plain = llama(), spread = experts(false), stacked = mixed(plain, 3);
  for (int i = 0; i < OT_COUNT(recipes); i++) {
    const char *const recipe = recipes[i];
    compare_in(&tied, recipe, (ot_candidate){.micro_batches = 3});
    compare_in(&tied, recipe, (ot_candidate){.dp = 2, .zero = 1});
    compare_in(&tied, recipe, (ot_candidate){.pp = 2, .dp = 2, .zero = 2, .tp = 2});
    compare_in(&plain, recipe, (ot_candidate){.dp = 2, .zero = 3, .tp = 2});
    compare_in(&plain, recipe, (ot_candidate){.pp = 2, .pipeline = OT_PIPELINE_1F1B});
    compare_in(&stacked, recipe, (ot_candidate){.dp = 2, .zero = 2, .cp = 2});
    compare_in(&spread, recipe, (ot_candidate){.dp = 4, .ep = 2, .zero = 3, .tp = 2});
    compare_in(&spread, recipe, (ot_candidate){.dp = 4, .ep = 2, .etp = 2, .zero = 0});
  }
  compare_in(&tied, "bf16-bf16-moments", (ot_candidate){.pp = 2, .dp = 2, .zero = 2, .tp = 2});
  compare_in(&plain, "bf16-bf16-moments", (ot_candidate){.dp = 2, .zero = 3, .tp = 2});
}

// The workspace of its kernels, and the memory of its runtime beside the arena.
static void estimates_for_an_accelerator_match_its_schedules(void **state) {
  (void)state;
  const ot_model plain = llama(), spread = experts(false);
  const comparison dense = {&plain, "fp32", NULL, true}, sparse = {&spread, "fp32", NULL, true};
  compare_as(dense, (ot_candidate){.pp = 2, .tp = 2});
  compare_as(dense, (ot_candidate){.dp = 2, .zero = 3, .cp = 2});
  compare_as(sparse, (ot_candidate){.dp = 4, .ep = 2, .zero = 2});
  assert_true(ot_engine_orthant.context_bytes >= 1000000000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_stage_estimate_matches_its_schedule),
      cmocka_unit_test(estimates_for_an_accelerator_match_its_schedules),
      cmocka_unit_test(data_parallel_estimates_match_their_schedules),
      cmocka_unit_test(muon_estimates_match_their_schedules),
      cmocka_unit_test(estimates_of_many_micro_batches_match_their_schedules),
      cmocka_unit_test(stage_estimates_match_their_schedules),
      cmocka_unit_test(estimates_of_composed_splits_match_their_schedules),
      cmocka_unit_test(expert_parallel_estimates_match_their_schedules),
      cmocka_unit_test(estimates_of_detailed_runs_match_their_schedules),
      cmocka_unit_test(estimates_of_any_expert_split_match_their_schedules),
      cmocka_unit_test(overflow_passes_cost_their_loop_bodies),
      cmocka_unit_test(remote_experts_are_the_same_work),
      cmocka_unit_test(expert_estimates_of_stages_match_their_schedules),
      cmocka_unit_test(stack_estimates_of_stages_match_their_schedules),
      cmocka_unit_test(stack_estimates_of_other_splits_match_their_schedules),
      cmocka_unit_test(other_frameworks_have_no_stack),
      cmocka_unit_test(bf16_estimates_match_their_schedules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
