// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: any machine. Pruned searches against exhaustive simulation on random small jobs; the space
// of candidates against loops over all degrees; bounds against estimates. Half of the jobs, unless
// OT_TESTS=full in the environment.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "advise/calibrate.h"
#include "base/rng.h"
#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "estimate/job_check.h"
#include "host/heap.h"
#include "search/bound.h"
#include "search/search.h"
#include "search/space.h"
#include "software/ability_check.h"
#include "support/paper_job.h"
#include "support/rank_case_models.h"
#include "support/tiny_model.h"

enum { PROBLEMS = 200, TOP = 10 };

static bool full(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0;
}

static uint64_t num_problems(void) { return full() ? PROBLEMS : PROBLEMS / 2; }

// A job with all objects that it points to.
typedef struct problem {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_cluster cluster;
  ot_engine other;  // if it is not this program
  ot_job job;
  ot_run run;
  ot_run_lists lists;  // of run
  uint64_t stream, draws;
} problem;

static int draw(problem *p, int bound) {
  return (int)ot_rng_below(5, p->stream, p->draws++, (uint64_t)bound);
}

static double draw_between(problem *p, double low, double high) {
  return low + (high - low) * ot_rng_uniform(6, p->stream, p->draws++);
}

static void draw_experts(problem *p) {
  p->model.family = OT_FAMILY_MIXTRAL;
  p->model.model_type = "mixtral";
  p->model.architecture = "MixtralForCausalLM";
  p->model.moe = (ot_moe){.num_experts = 4,
                          .experts_per_token = 1 + draw(p, 3),
                          .expert_size = 32,
                          .score = OT_MOE_SOFTMAX,
                          .renormalise = true,
                          .scale = 1,
                          .num_groups = 1,
                          .groups_per_token = 1,
                          .capacity_factor = 1,
                          .balance = OT_MOE_BALANCE_NONE};
  for (int i = 0; i < (int)p->model.num_layers; i++) p->model.moe.layer[i] = true;
}

static void draw_model(problem *p) {
  p->model = draw(p, 2) == 0 ? tiny_gpt2() : tiny_llama();
  p->model.num_layers = 1 + draw(p, 6);
  p->model.num_heads = 4;
  p->model.num_kv_heads = draw(p, 2) == 0 && p->model.num_kv_heads < 4 ? 2 : 4;
  p->model.hidden_size = 16 << draw(p, 3);
  p->model.head_dim = p->model.hidden_size / 4;
  if (p->model.rotary_dim > 0) p->model.rotary_dim = p->model.head_dim;
  p->model.intermediate_size = 2 * p->model.hidden_size;
  if (p->model.gated_mlp && draw(p, 2) == 0) draw_experts(p);
}

// Like the presets of GPUs.
static void describe(ot_cluster *cluster) {
  for (int i = 0; i < OT_DTYPE_COUNT; i++) cluster->device.flops[i] = 3e13;
  cluster->device.other_flops_per_s = 4e12;
  cluster->device.memory_bytes_per_s *= 1e3;
  cluster->device.memory_bytes = 1 << 30;
  for (int i = 0; i < cluster->num_levels; i++) cluster->level[i].bytes_per_s *= 1e3;
  cluster->device.processors = 7;
  cluster->device.matrix_efficiency = 0.6;
  cluster->device.memory_efficiency = 0.9;
  cluster->device.attention_efficiency = 0.3;
  cluster->device.attention_1_efficiency = 0.2;
  cluster->device.half_keys = 20;
  cluster->device.unaligned_efficiency = 0.5;
  cluster->level[0].efficiency = 0.8;
  cluster->level[0].reduces = true;
  cluster->level[1].efficiency = 0.7;
}

static void draw_cluster(problem *p, int devices) {
  p->cluster = (ot_cluster){.name = "drawn",
                            .num_devices = devices,
                            .device = {.name = "abacus",
                                       .other_flops_per_s = 4e9,
                                       .memory_bytes_per_s = draw_between(p, 1e9, 1e11),
                                       .packs = draw(p, 2) == 0,
                                       .launch_s = draw_between(p, 0, 1e-5),
                                       .memory_bytes = 400000 << draw(p, 8)},
                            .num_levels = 2,
                            .level = {{.name = "node",
                                       .size = 1 + draw(p, 4),
                                       .bytes_per_s = draw_between(p, 1e8, 1e10),
                                       .latency_s = draw_between(p, 0, 1e-5)},
                                      {.name = "net",
                                       .bytes_per_s = draw_between(p, 1e7, 1e8),
                                       .latency_s = draw_between(p, 0, 1e-4)}}};
  p->cluster.level[1].size = 64 * p->cluster.level[0].size;
  for (int i = 0; i < OT_DTYPE_COUNT; i++) p->cluster.device.flops[i] = 3e10;
  if (!p->cluster.device.packs) describe(&p->cluster);
}

// Kernels and traffic that slow each other down; on some clusters they take similar times.
static void draw_traffic(problem *p) {
  p->cluster.device.contention = draw_between(p, 1, 9);
  if (draw(p, 2) == 0) return;
  p->cluster.device.launch_s = 0;
  const double rate = 1e10 * (double)(1 << draw(p, 10));
  for (int i = 0; i < p->cluster.num_levels; i++) {
    p->cluster.level[i].latency_s = 0;
    p->cluster.level[i].bytes_per_s = rate;
  }
}

// Overlap options as in one framework or another.
static const ot_engine *draw_engine(problem *p) {
  static const char *const others[] = {"megatron-core", "torchtitan", "nanotron", "oneflow"};
  p->other = *paper_engine(others[draw(p, 4)]);
  p->other.overlap_reduce = draw(p, 2) == 0;
  p->other.overlap_gather = draw(p, 2) == 0;
  p->other.reduce_each_micro_batch = draw(p, 2) == 0;
  p->other.reshard_after_forward = draw(p, 2) == 0;
  return &p->other;
}

// A run that sets the expert buffer: all tokens in one pass, or some in overflow passes.
static void draw_run(problem *p) {
  static const ot_candidate one_rank = {.dp = 1, .dp_shard = 1};
  static const double rooms[] = {1, 1.25, 1.7, 2, 4};
  if (draw(p, 2) == 0) return;
  ot_candidate_run(&p->job, &one_rank, &p->lists, &p->run);
  p->run.parallel.expert_buffer = rooms[draw(p, OT_COUNT(rooms))];
  p->job.run = &p->run;
}

static void draw_imbalance(problem *p) {
  static const double loads[] = {1, 1.5, 2, 3.3};
  p->job.expert_imbalance = loads[draw(p, OT_COUNT(loads))];
}

// Fixes some degrees, so that all candidates can be simulated.
static void draw_given(problem *p) {
  ot_candidate *const given = &p->job.given;
  *given = (ot_candidate){.zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1};
  if (draw(p, 2) == 0) given->recompute = (ot_recompute)draw(p, 3);
  if (draw(p, 2) == 0) given->zero = draw(p, 4);
  if (draw(p, 2) == 0) given->cp = 1;
  if (draw(p, 3) == 0) given->pipeline = (ot_pipeline)draw(p, 6);
  if (draw(p, 3) == 0) given->micro_batch_size = 1;
}

static void create(uint64_t number, problem *p) {
  static const int devices[] = {1, 2, 3, 4, 6, 8};
  *p = (problem){.stream = number};
  p->arena = ot_heap_arena_create(&p->heap);
  draw_model(p);
  const int count = devices[draw(p, 6)];
  draw_cluster(p, count);
  const bool own = draw(p, 2) == 0;
  p->job = (ot_job){.model = &p->model,
                    .cluster = &p->cluster,
                    .engine = own ? &ot_engine_orthant : draw_engine(p),
                    .recipe = *ot_recipe_find(draw(p, 2) == 0 ? "fp32" : "bf16"),
                    .devices = count,
                    .global_batch_size = 4 + 4 * draw(p, 4),
                    .sequence_length = 16 << draw(p, 3)};
  draw_given(p);
  // Engines keep their limits where they allow what is given.
  p->other.runs.families.num = 0;
  if (!own && ot_ability_check_job(&p->job) != OT_OK) p->other.runs = (ot_abilities){0};
  if (own) draw_run(p);
  if (own) draw_imbalance(p);
  if (!p->cluster.device.packs) draw_traffic(p);
  p->job.even_chunks = number % 4 == 3;
}

static void destroy(problem *p) { ot_heap_release(&p->heap); }

static void search(problem *p, bool exhaustive, ot_search *out) {
  const ot_search_request request = {.job = &p->job, .top = TOP, .exhaustive = exhaustive};
  if (ot_search_build(&request, &p->arena, out) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void assert_same_plan(uint64_t number, const ot_estimate *a, const ot_estimate *b) {
  char text[2][256];
  ot_candidate_print(&a->candidate, text[0], sizeof text[0]);
  ot_candidate_print(&b->candidate, text[1], sizeof text[1]);
  if (ot_candidate_compare(&a->candidate, &b->candidate) != 0 || a->step_s != b->step_s) {
    fail_msg("problem %d: %s, %.17g s; simulating all: %s, %.17g s", (int)number, text[0],
             a->step_s, text[1], b->step_s);
  }
}

// The same plans, or the same nearest one if nothing fits.
static void assert_same_result(uint64_t number, const ot_search *early,
                               const ot_search *everything) {
  assert_int_equal(early->num_plans, everything->num_plans);
  for (int k = 0; k < early->num_plans; k++) {
    assert_same_plan(number, &early->plans[k], &everything->plans[k]);
  }
  if (early->num_plans == 0 && everything->num_simulated > 0) {
    assert_same_plan(number, &early->nearest, &everything->nearest);
  }
  assert_int_equal(early->num_candidates, everything->num_candidates);
  assert_int_equal(early->num_rejected[OT_REJECTED_RULE],
                   everything->num_rejected[OT_REJECTED_RULE]);
  assert_int_equal(everything->num_rejected[OT_REJECTED_SLOWER], 0);
}

static void pruned_search_equals_exhaustive_search(void **state) {
  (void)state;
  int64_t simulated = 0, all = 0, with_plans = 0, by_memory = 0;
  for (uint64_t i = 0; i < num_problems(); i++) {
    problem p;
    ot_search early, everything;
    create(i, &p);
    search(&p, false, &early);
    search(&p, true, &everything);
    assert_same_result(i, &early, &everything);
    simulated += early.num_simulated;
    all += everything.num_simulated;
    with_plans += early.num_plans > 0;
    by_memory += everything.num_rejected[OT_REJECTED_MEMORY];
    destroy(&p);
  }
  assert_true(simulated < all);
  assert_true(with_plans > (int64_t)num_problems() / 3);
  assert_true(by_memory > 0);
}

// A measured step that differs by `log_ratio` from the prediction of the fastest plan.
static bool calibrate(problem *p, double log_ratio, ot_calibration *out) {
  ot_search found;
  search(p, false, &found);
  if (found.num_plans == 0) return false;
  out->count = 1;
  out->rows[0] = (ot_calibrating_row){.log_ratio = log_ratio, .variance = 0.02};
  ot_traits_find(&p->job, &found.plans[0], &out->rows[0].traits);
  ot_calibration_find(out);
  ot_step_correction *const correction = ot_arena_take(&p->arena, sizeof *correction);
  *correction = ot_calibration_of_steps(out);
  p->job.correction = correction;
  return true;
}

static void measured_steps_correct_plans_and_their_bounds(void **state) {
  (void)state;
  enum { SOME = 40 };
  int other_plans = 0;
  for (uint64_t i = 0; i < SOME; i++) {
    problem p;
    ot_search before, early, everything;
    create(i, &p);
    search(&p, false, &before);
    ot_calibration *const calibration = ot_arena_take(&p.arena, sizeof *calibration);
    if (calibrate(&p, i % 2 == 0 ? 0.4 : -0.4, calibration)) {
      search(&p, false, &early);
      search(&p, true, &everything);
      assert_same_result(i, &early, &everything);
      other_plans +=
          ot_candidate_compare(&early.plans[0].candidate, &before.plans[0].candidate) != 0;
    }
    destroy(&p);
  }
  assert_true(other_plans > 0);
}

static bool has_same_degrees(const ot_candidate *a, const ot_candidate *b) {
  ot_candidate same = *b;
  same.vpp = a->vpp;
  same.dp_shard = a->dp_shard;
  same.micro_batch_size = a->micro_batch_size;
  same.micro_batches = a->micro_batches;
  same.pipeline = a->pipeline;
  same.recompute = a->recompute;
  same.modules = a->modules;
  same.no_sequence_parallel = a->no_sequence_parallel;
  return ot_candidate_compare(a, &same) == 0;
}

// The fastest plans of `all`, each the first with its degrees [num_distinct].
static int take_distinct(const ot_search *all, ot_estimate *out) {
  int count = 0;
  for (int i = 0; i < all->num_plans && count < TOP; i++) {
    bool is_new = true;
    for (int k = 0; k < count; k++) {
      is_new = is_new && !has_same_degrees(&out[k].candidate, &all->plans[i].candidate);
    }
    if (is_new) out[count++] = all->plans[i];
  }
  return count;
}

static void of_plans_with_the_same_degrees_the_fastest_is_shown_when_asked(void **state) {
  (void)state;
  enum { ALL = 100000, SOME = 30 };
  int left_out = 0;
  for (uint64_t i = 0; i < SOME; i++) {
    problem p;
    ot_search found, all;
    ot_estimate expected[TOP];
    create(i, &p);
    const ot_search_request distinct = {.job = &p.job, .top = TOP, .distinct = true};
    const ot_search_request every = {.job = &p.job, .top = ALL, .exhaustive = true};
    assert_int_equal(ot_search_build(&distinct, &p.arena, &found), OT_OK);
    assert_int_equal(ot_search_build(&every, &p.arena, &all), OT_OK);
    assert_int_equal(found.num_plans, take_distinct(&all, expected));
    for (int k = 0; k < found.num_plans; k++) {
      assert_same_plan(i, &found.plans[k], &expected[k]);
      left_out += ot_candidate_compare(&found.plans[k].candidate, &all.plans[k].candidate) != 0;
    }
    destroy(&p);
  }
  assert_true(left_out > 0);
}

// Visits every candidate of a space.
typedef struct candidate_walk {
  const ot_space *space;
  int64_t group;
  int order, shard, recompute;
} candidate_walk;

static bool next_candidate(candidate_walk *w, ot_candidate *out) {
  if (w->group == w->space->groups.count) return false;
  const ot_space_group *const group = ot_space_group_at(w->space, w->group);
  *out = ot_space_candidate(group, group->orders[w->order], group->shards[w->shard],
                            w->space->recompute[w->recompute]);
  if (++w->recompute < w->space->num_recomputes) return true;
  w->recompute = 0;
  if (++w->shard < group->num_shards) return true;
  w->shard = 0;
  if (++w->order < group->num_orders) return true;
  w->order = 0;
  w->group++;
  return true;
}

static void assert_bounds(ot_estimator *estimator, const ot_candidate *candidate) {
  ot_estimate estimate;
  ot_estimate_bound bound;
  char text[256];
  ot_candidate_print(candidate, text, sizeof text);
  if (ot_estimate_build(estimator, candidate, &estimate) != OT_OK)
    fail_msg("%s", ot_fail_message());
  double work_s;
  assert_int_equal(ot_bound_replay(estimator, candidate, &work_s), OT_OK);
  for (int i = 0; i < (int)OT_BOUND_DEPTHS * (int)OT_BOUND_SCOPES; i++) {
    const int depth = i / OT_BOUND_SCOPES, scope = i % OT_BOUND_SCOPES;
    const ot_bound_request request = {.candidate = candidate,
                                      .depth = (ot_bound_depth)depth,
                                      .scope = (ot_bound_scope)scope,
                                      .work_s = depth % 2 == 1 ? work_s : 0};
    if (depth >= OT_BOUND_CUT && scope != OT_SCOPE_ONE) continue;
    assert_int_equal(ot_bound_build(estimator, &request, &bound), OT_OK);
    if (bound.step_s > estimate.step_s || bound.peak > estimate.memory.peak) {
      fail_msg(
          "%s, shard %d, depth %d of scope %d: at least %.9g s and %lld bytes; %.9g s and "
          "%lld bytes",
          text, candidate->dp_shard, depth, scope, bound.step_s, (long long)bound.peak,
          estimate.step_s, (long long)estimate.memory.peak);
    }
  }
}

static void assert_all_bounds(problem *p) {
  ot_space space;
  ot_estimator *estimator;
  assert_int_equal(ot_estimator_build(&p->job, &p->arena, &estimator), OT_OK);
  ot_space_build(&p->job, &p->arena, &space);
  candidate_walk walk = {.space = &space};
  ot_candidate candidate;
  while (next_candidate(&walk, &candidate)) assert_bounds(estimator, &candidate);
}

static void bounds_never_exceed_estimates(void **state) {
  (void)state;
  for (uint64_t i = 0; i < num_problems(); i++) {
    problem p;
    create(i, &p);
    assert_all_bounds(&p);
    destroy(&p);
  }
}

// Latent attention, dense layers, experts and shared experts: everything that can be recomputed by
// itself. Memory is drawn so that some sets of it fit where others do not.
static void create_latent(uint64_t number, problem *p) {
  create(number, p);
  p->model = rank_model(RANK_LATENT, 2 + draw(p, 3), draw(p, 2) == 0);
  p->job.engine = draw(p, 2) == 0 ? &ot_engine_orthant : paper_engine("megatron-core");
  p->job.recipe = *ot_recipe_find("bf16");
  p->job.run = NULL;
  p->job.expert_imbalance = 1;
  p->job.given = (ot_candidate){.zero = draw(p, 2),
                                .cp = 1,
                                .micro_batch_size = 1,
                                .pipeline = (ot_pipeline)-1,
                                .recompute = (ot_recompute)-1};
  p->cluster.device.memory_bytes = (int64_t)draw_between(p, 1e6, 4e6);
}

static void sets_of_recomputed_modules_are_searched_like_all_others(void **state) {
  (void)state;
  enum { SOME = 24 };
  int64_t simulated = 0, all = 0;
  int with_modules = 0, sets = 0;
  for (uint64_t i = 0; i < SOME; i++) {
    problem p;
    ot_search early, everything;
    ot_space space;
    create_latent(i, &p);
    ot_space_build(&p.job, &p.arena, &space);
    for (int r = 0; r < space.num_recomputes; r++) sets += space.recompute[r].modules != 0;
    search(&p, false, &early);
    search(&p, true, &everything);
    assert_same_result(i, &early, &everything);
    if (i % 4 == 0) assert_all_bounds(&p);
    for (int k = 0; k < early.num_plans; k++) with_modules += early.plans[k].candidate.modules != 0;
    simulated += early.num_simulated;
    all += everything.num_simulated;
    destroy(&p);
  }
  assert_int_equal(sets, 3 * SOME);
  assert_true(simulated < all);
  assert_true(with_modules > SOME);
}

// Valid combinations of pipeline schedule and ZeRO stage, as search/space.h defines them.
static bool is_one(const ot_job *job, const ot_candidate *c) {
  const bool folded = ot_pipeline_rules_of(c->pipeline)->min_chunks > 1;
  const bool hides = job->engine->overlap_pairs && job->model->moe.num_experts > 0;
  if (c->pipeline == OT_PIPELINE_DUALPIPE_V && !hides) return false;
  if (c->pp == 1 && (c->pipeline != OT_PIPELINE_1F1B || c->vpp > 1)) return false;
  if (c->pp > 1 && (c->vpp > 1) != folded) return false;
  if (job->even_chunks && c->pp > 1 && job->model->num_layers % ((int64_t)c->pp * c->vpp) != 0)
    return false;
  return c->zero == 0 ? c->dp_shard == 1 : c->dp_shard > 1;
}

// The next digit, from 0, of a number that encodes many choices.
static int digit(int64_t *number, int64_t choices) {
  const int64_t value = *number % choices;
  *number /= choices;
  return (int)value;
}

// Counts all pipeline schedules and ZeRO stages.
static int64_t count_ways(const ot_job *job, ot_candidate c) {
  const int64_t chunks = job->model->num_layers + 1;
  int64_t count = 0;
  for (int64_t i = 0; i < (int)OT_PIPELINES * chunks * 4 * c.dp; i++) {
    int64_t rest = i;
    c.pipeline = (ot_pipeline)digit(&rest, OT_PIPELINES);
    c.vpp = 1 + digit(&rest, chunks);
    c.zero = digit(&rest, 4);
    c.dp_shard = 1 + digit(&rest, c.dp);
    count += is_one(job, &c) && ot_candidate_check(job, &c) == OT_OK;
  }
  return count;
}

static int64_t count_all(const ot_job *job) {
  const int64_t n = job->devices, experts = 4, batch = job->global_batch_size;
  int64_t count = 0;
  for (int64_t i = 0; i < n * n * n * experts * batch; i++) {
    int64_t rest = i;
    ot_candidate c = {.etp = 1};
    c.tp = 1 + digit(&rest, n);
    c.pp = 1 + digit(&rest, n);
    c.cp = 1 + digit(&rest, n);
    c.ep = 1 + digit(&rest, experts);
    c.micro_batch_size = 1 + digit(&rest, batch);
    c.dp = (int)n / (c.tp * c.pp * c.cp);
    if (c.dp * c.tp * c.pp * c.cp != n) continue;
    c.micro_batches = ot_candidate_micro_batches(job, &c);
    if (c.micro_batches > 0) count += count_ways(job, c);
  }
  return count;
}

static void the_space_is_all_that_the_rules_allow(void **state) {
  (void)state;
  enum { SPACES = 40 };
  int64_t refused = 0;
  for (uint64_t i = 0; i < SPACES; i++) {
    problem p;
    ot_space space;
    ot_candidate candidate;
    int64_t count = 0;
    create(i, &p);
    p.job.given =
        (ot_candidate){.zero = -1, .pipeline = (ot_pipeline)-1, .recompute = OT_RECOMPUTE_NONE};
    ot_space_build(&p.job, &p.arena, &space);
    for (candidate_walk walk = {.space = &space}; next_candidate(&walk, &candidate); count++) {
      if (ot_candidate_check(&p.job, &candidate) != OT_OK) fail_msg("%s", ot_fail_message());
    }
    assert_int_equal(count, space.num_candidates - space.num_refused);
    assert_int_equal(count, count_all(&p.job));
    refused += space.num_refused;
    destroy(&p);
  }
  assert_true(refused > 0);
}

// ---- sizes ----

// The whole batch as one micro-batch, in sequences of up to a million tokens; skips invalid
// degrees. Returns the number of estimated candidates.
static int estimate_long_ones(const char *preset, const ot_engine *engine) {
  static const int64_t lengths[] = {2048, 1 << 20}, sizes[] = {1, 1 << 16};
  static const int ways[][2] = {{1, 1}, {8, 1}, {1, 256}, {8, 8}};  // tp, cp
  int estimated = 0;
  for (int i = 0; i < OT_COUNT(lengths) * OT_COUNT(sizes) * OT_COUNT(ways); i++) {
    const int tp = ways[i / 4][0], cp = ways[i / 4][1];
    ot_candidate c = {.tp = tp, .pp = 1, .vpp = 1, .cp = cp, .ep = 1, .etp = 1, .dp = 1};
    paper_job p;
    ot_estimator *estimator;
    ot_estimate estimate;
    paper_job_create(preset, tp * cp, sizes[i % 2], lengths[i / 2 % 2], &p);
    p.job.engine = engine;
    c.dp_shard = 1;
    c.micro_batch_size = sizes[i % 2];
    c.micro_batches = 1;
    c.pipeline = OT_PIPELINE_1F1B;
    if (ot_candidate_check(&p.job, &c) == OT_OK) {
      if (ot_estimator_build(&p.job, &p.arena, &estimator) != OT_OK ||
          ot_estimate_build(estimator, &c, &estimate) != OT_OK) {
        fail_msg("%s as %s, case %d: %s", preset, engine->name, i, ot_fail_message());
      }
      estimated++;
    }
    paper_job_destroy(&p);
  }
  return estimated;
}

static void no_micro_batch_is_too_long_for_any_engine(void **state) {
  (void)state;
  static const char *const presets[] = {"gpt2", "llama3-70b", "mixtral-8x7b", "deepseek-v3"};
  const ot_engine *engine;
  for (int i = 0; (engine = paper_engine_at(i)) != NULL; i++) {
    for (int k = 0; k < OT_COUNT(presets); k++) {
      if (k % 2 != i % 2 && i > 0 && !full()) continue;  // two sizes of each
      ot_engine any = *engine;
      any.runs = (ot_abilities){0};
      assert_true(estimate_long_ones(presets[k], i == 0 ? engine : &any) >= 8);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_space_is_all_that_the_rules_allow),
      cmocka_unit_test(bounds_never_exceed_estimates),
      cmocka_unit_test(pruned_search_equals_exhaustive_search),
      cmocka_unit_test(sets_of_recomputed_modules_are_searched_like_all_others),
      cmocka_unit_test(measured_steps_correct_plans_and_their_bounds),
      cmocka_unit_test(no_micro_batch_is_too_long_for_any_engine),
      cmocka_unit_test(of_plans_with_the_same_degrees_the_fastest_is_shown_when_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
