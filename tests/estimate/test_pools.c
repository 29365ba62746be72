// SPDX-License-Identifier: Apache-2.0
// run: any machine. Mixed clusters: pools of equal devices give the figures of the plain cluster;
// pools whose rates are 2:1 get work 2:1 and take the time of closed forms; limits and errors;
// pruned searches against exhaustive ones, bounds against estimates.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/crossing.h"
#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "host/heap.h"
#include "search/bound.h"
#include "search/search.h"
#include "support/paper_job.h"
#include "support/tiny_model.h"

typedef struct mixed {
  paper_job paper;
  ot_cluster pools[OT_MAX_POOLS];
  ot_cluster cluster;
  ot_job job;
  ot_estimator *estimator;
} mixed;

static void join(mixed *m, int num_pools, const ot_link_level *between) {
  if (ot_cluster_join("mixed", m->pools, num_pools, between, &m->cluster) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  m->job = m->paper.job;
  m->job.cluster = &m->cluster;
  m->job.devices = m->cluster.num_devices;
}

static void build(mixed *m) {
  if (ot_estimator_build(&m->job, &m->paper.arena, &m->estimator) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
}

static ot_estimate estimate(ot_estimator *estimator, const ot_candidate *c) {
  ot_estimate out;
  if (ot_estimate_build(estimator, c, &out) != OT_OK) fail_msg("%s", ot_fail_message());
  return out;
}

static void destroy(mixed *m) { paper_job_destroy(&m->paper); }

// ---- equal pools ----

static void create_equal(const char *engine, mixed *m) {
  paper_job_create("llama3-8b", 128, 512, 4096, &m->paper);
  if (engine) m->paper.job.engine = paper_engine(engine);
  for (int i = 0; i < 2; i++) {
    m->pools[i] = m->paper.cluster;
    m->pools[i].num_devices = 64;
  }
  join(m, 2, &m->paper.cluster.level[1]);
  build(m);
}

static ot_candidate candidate(int tp, int pp, ot_pipeline pipeline, int zero, int shard) {
  const bool chunks = ot_pipeline_rules_of(pipeline)->min_chunks > 1;
  return (ot_candidate){.tp = tp,
                        .pp = pp,
                        .vpp = chunks ? 2 : 1,
                        .cp = 1,
                        .ep = 1,
                        .etp = 1,
                        .dp = 128 / tp / pp,
                        .dp_shard = shard,
                        .zero = zero,
                        .micro_batch_size = 1,
                        .micro_batches = 4 * tp * pp,
                        .pipeline = pipeline,
                        .recompute = OT_RECOMPUTE_NONE};
}

static void assert_close(const char *what, double a, double b) {
  if (fabs(a - b) > 1e-9 * fabs(b)) fail_msg("%s: %.17g, plain %.17g", what, a, b);
}

static void assert_same(const ot_estimate *a, const ot_estimate *b) {
  assert_close("step", a->step_s, b->step_s);
  assert_close("compute", a->compute_s, b->compute_s);
  assert_close("update", a->update_s, b->update_s);
  assert_close("bubble", a->bubble_s, b->bubble_s);
  assert_close("mfu", a->mfu, b->mfu);
  assert_close("hfu", a->hfu, b->hfu);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    assert_close("exposed", a->exposed_s[i], b->exposed_s[i]);
  }
  assert_int_equal(a->memory.peak, b->memory.peak);
  assert_int_equal(a->memory.stage, b->memory.stage);
  assert_int_equal(a->fits, b->fits);
}

static void equal_pools_are_the_plain_cluster(void **state) {
  (void)state;
  static const char *const engines[] = {NULL, "megatron-core", "torchtitan"};
  const ot_candidate all[] = {
      candidate(1, 2, OT_PIPELINE_1F1B, 1, 64),       candidate(1, 4, OT_PIPELINE_1F1B, 1, 8),
      candidate(2, 4, OT_PIPELINE_INTERLEAVED, 0, 1), candidate(4, 2, OT_PIPELINE_ZB_H1, 2, 8),
      candidate(1, 8, OT_PIPELINE_ZB_V, 1, 16),       candidate(8, 1, OT_PIPELINE_1F1B, 1, 16),
      candidate(1, 1, OT_PIPELINE_1F1B, 3, 64),       candidate(1, 1, OT_PIPELINE_1F1B, 0, 1),
  };
  for (int e = 0; e < OT_COUNT(engines); e++) {
    mixed m;
    ot_estimator *plain;
    create_equal(engines[e], &m);
    assert_int_equal(ot_estimator_build(&m.paper.job, &m.paper.arena, &plain), OT_OK);
    for (int i = 0; i < OT_COUNT(all); i++) {
      const ot_estimate whole = estimate(plain, &all[i]);
      int compared = 0;
      for (ot_crossing crosses = OT_CROSSES_PP; crosses <= OT_CROSSES_DP; crosses++) {
        ot_candidate c = all[i];
        c.crosses = crosses;
        if (ot_crossing_check(&m.job, &c) != OT_OK) continue;
        const ot_estimate apart = estimate(m.estimator, &c);
        assert_same(&apart, &whole);
        compared++;
      }
      assert_true(compared >= 1);
    }
    destroy(&m);
  }
}

// ---- rates 2:1, no time but that of products ----

static const double rate = 1e12;

// Two pools of one device each, the first twice as fast; links and memory take no time.
static void create_fast_slow(int layers, int64_t sequences, mixed *m) {
  paper_job_create("llama3-8b", 2, sequences, 256, &m->paper);
  m->paper.model = tiny_llama();
  m->paper.model.num_layers = layers;
  m->paper.model.vocab_size = 16;
  m->paper.job.recipe = *ot_recipe_find("fp32");
  for (int i = 0; i < 2; i++) {
    m->pools[i] = (ot_cluster){.name = i == 0 ? "fast" : "slow",
                               .num_devices = 1,
                               .device = {.name = "abacus",
                                          .flops = {[OT_F32] = i == 0 ? 2 * rate : rate},
                                          .other_flops_per_s = 1e30,
                                          .memory_bytes_per_s = 1e30,
                                          .memory_bytes = (int64_t)80e9}};
  }
  join(m, 2, &(ot_link_level){.name = "wire", .bytes_per_s = 1e30});
  build(m);
}

// FLOPs of a micro-batch of one sequence through `layers` layers and the head, from one device.
static double flops_of(const mixed *m, int layers) {
  ot_model model = m->paper.model;
  model.num_layers = layers;
  ot_job job = m->paper.job;
  ot_estimator *one;
  job.model = &model;
  job.cluster = &m->pools[0];
  job.devices = 1;
  job.global_batch_size = 1;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  if (ot_estimator_build(&job, &arena, &one) != OT_OK) fail_msg("%s", ot_fail_message());
  const ot_candidate c = {.tp = 1,
                          .pp = 1,
                          .vpp = 1,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .dp = 1,
                          .dp_shard = 1,
                          .micro_batch_size = 1,
                          .micro_batches = 1};
  const double flops = estimate(one, &c).hardware_flops;
  ot_heap_release(&heap);
  return flops;
}

static ot_candidate pair_of(int pp, int64_t micro_batches, ot_crossing crosses) {
  return (ot_candidate){.tp = 1,
                        .pp = pp,
                        .vpp = 1,
                        .cp = 1,
                        .ep = 1,
                        .etp = 1,
                        .dp = 2 / pp,
                        .dp_shard = 1,
                        .micro_batch_size = 1,
                        .micro_batches = micro_batches,
                        .pipeline = OT_PIPELINE_1F1B,
                        .crosses = crosses};
}

static void stages_get_layers_by_rate(void **state) {
  (void)state;
  enum { LAYERS = 12, M = 10 };
  mixed m;
  create_fast_slow(LAYERS, M, &m);
  const ot_candidate c = pair_of(2, M, OT_CROSSES_PP);
  const ot_estimate e = estimate(m.estimator, &c);
  const double layer = flops_of(&m, 2) - flops_of(&m, 1), head = flops_of(&m, 1) - layer;
  assert_true(head < layer / 2);  // so 8 and 4 are best
  assert_int_equal(e.pools[0].layers, 8);
  assert_int_equal(e.pools[1].layers, 4);
  // 1F1B of two stages: the first micro-batch passes the fast stage, then the slow one is busy.
  const double fast_s = 8 * layer / (2 * rate), slow_s = (4 * layer + head) / rate;
  assert_true(slow_s > fast_s);
  assert_close("step", e.step_s, fast_s + M * slow_s);
  assert_close(
      "mfu", e.mfu,
      M * (LAYERS * layer + head) * e.model_flops / e.hardware_flops / (3 * rate) / e.step_s);
  destroy(&m);
}

static void replicas_get_micro_batches_by_rate(void **state) {
  (void)state;
  enum { LAYERS = 3, M = 12 };
  mixed m;
  create_fast_slow(LAYERS, M, &m);
  const ot_candidate c = pair_of(1, M / 2, OT_CROSSES_DP);
  const ot_estimate e = estimate(m.estimator, &c);
  assert_int_equal(e.pools[0].micro_batches, 8);
  assert_int_equal(e.pools[1].micro_batches, 4);
  assert_close("step", e.step_s, 4 * flops_of(&m, LAYERS) / rate);
  assert_close("step", e.step_s, M * flops_of(&m, LAYERS) / (3 * rate));
  destroy(&m);
}

// 13 micro-batches: 9 and 4 take max(4.5, 4), 8 and 5 max(4, 5).
static void uneven_rests_go_where_they_cost_least(void **state) {
  (void)state;
  mixed m;
  create_fast_slow(3, 13, &m);
  const ot_candidate c = pair_of(1, 7, OT_CROSSES_DP);
  const ot_estimate e = estimate(m.estimator, &c);
  assert_int_equal(e.pools[0].micro_batches, 9);
  assert_int_equal(e.pools[1].micro_batches, 4);
  assert_close("step", e.step_s, 4.5 * flops_of(&m, 3) / rate);
  destroy(&m);
}

// 4 micro-batches: 3 and 1. The slow pool is ready first, and its update begins when the other is.
static void updates_begin_when_all_pools_are_ready(void **state) {
  (void)state;
  mixed m;
  create_fast_slow(3, 4, &m);
  m.pools[1].device.memory_bytes_per_s = 1e12;
  join(&m, 2, &(ot_link_level){.name = "wire", .bytes_per_s = 1e30});
  build(&m);
  ot_candidate c = pair_of(1, 2, OT_CROSSES_DP);
  const ot_estimate e = estimate(m.estimator, &c);
  assert_int_equal(e.pools[0].micro_batches, 3);
  ot_estimate alone[2];
  for (int i = 0; i < 2; i++) {
    ot_job job = m.job;
    ot_estimator *one;
    job.cluster = &m.pools[i];
    job.devices = 1;
    c.micro_batches = job.global_batch_size = i == 0 ? 3 : 1;
    c.dp = 1;
    c.crosses = OT_CROSSES_NOTHING;
    assert_int_equal(ot_estimator_build(&job, &m.paper.arena, &one), OT_OK);
    alone[i] = estimate(one, &c);
  }
  assert_true(alone[0].step_s > alone[1].step_s - alone[1].update_s);
  assert_true(e.step_s > alone[0].step_s && e.step_s > alone[1].step_s);
  assert_true(e.step_s <= alone[0].step_s + alone[1].update_s);
  destroy(&m);
}

// Two nodes of eight, each a pool: with two stages, plain stages have a node each, while replicas
// in both pools reduce their gradients over the network.
static void gradients_cross_where_replicas_do(void **state) {
  (void)state;
  mixed m;
  ot_estimator *plain;
  paper_job_create("gpt2", 16, 64, 1024, &m.paper);
  for (int i = 0; i < 2; i++) {
    m.pools[i] = m.paper.cluster;
    m.pools[i].num_devices = 8;
  }
  join(&m, 2, &m.paper.cluster.level[1]);
  build(&m);
  assert_int_equal(ot_estimator_build(&m.paper.job, &m.paper.arena, &plain), OT_OK);
  ot_candidate c = candidate(1, 2, OT_PIPELINE_1F1B, 0, 1);
  c.dp = 8;
  const double within_s = estimate(plain, &c).exposed_s[OT_TIMELINE_DP];
  c.crosses = OT_CROSSES_DP;
  const double across_s = estimate(m.estimator, &c).exposed_s[OT_TIMELINE_DP];
  if (across_s < 2 * within_s) fail_msg("%g s, within a node %g s", across_s, within_s);
  destroy(&m);
}

// A message of n bytes between pools takes the time of the slower side's links.
static void crossing_messages_use_the_links_between(void **state) {
  (void)state;
  enum { M = 4 };
  mixed m;
  create_fast_slow(12, M, &m);
  const ot_candidate c = pair_of(2, M, OT_CROSSES_PP);
  const double free_s = estimate(m.estimator, &c).step_s;
  const double bytes = 256.0 * (double)m.paper.model.hidden_size * 4, wire = 1e6;
  join(&m, 2, &(ot_link_level){.name = "wire", .bytes_per_s = wire});
  build(&m);
  const double hop_s = bytes / wire, slow_s = estimate(m.estimator, &c).step_s;
  // The first forward and the last backward at least wait for one message each.
  if (slow_s < free_s + 2 * hop_s || slow_s > free_s + 2 * M * hop_s) {
    fail_msg("%g s, %g s without messages of %g s", slow_s, free_s, hop_s);
  }
  destroy(&m);
}

// ---- what stays in a pool ----

static void memory_is_checked_in_each_pool(void **state) {
  (void)state;
  mixed m;
  create_equal(NULL, &m);
  ot_candidate c = candidate(1, 2, OT_PIPELINE_1F1B, 1, 64);
  c.crosses = OT_CROSSES_PP;
  const ot_estimate roomy = estimate(m.estimator, &c);
  assert_true(roomy.fits);
  const ot_memory_estimate *const last = &roomy.pools[1].memory;
  m.pools[1].device.memory_bytes = last->reserved + last->context - 1;
  m.pools[1].device.usable_bytes = 0;
  join(&m, 2, &m.paper.cluster.level[1]);
  build(&m);
  const ot_estimate tight = estimate(m.estimator, &c);
  assert_false(tight.fits);
  assert_int_equal(tight.memory.stage, 1);
  assert_int_equal(tight.memory.capacity, m.pools[1].device.memory_bytes);
  destroy(&m);
}

static void expect_refusal(const ot_job *job, ot_candidate c, const char *text) {
  assert_int_equal(ot_candidate_check(job, &c), OT_USAGE);
  if (!ot_text_find(ot_fail_message(), text)) fail_msg("%s", ot_fail_message());
}

static void stages_replicas_and_shards_are_whole(void **state) {
  (void)state;
  mixed m;
  create_equal(NULL, &m);
  ot_candidate c = candidate(1, 1, OT_PIPELINE_1F1B, 0, 1);
  expect_refusal(&m.job, c, "neither pp nor dp crosses");
  c.crosses = OT_CROSSES_PP;
  expect_refusal(&m.job, c, "stages of 128 devices do not fill pool paper of 64");
  c = candidate(1, 128, OT_PIPELINE_1F1B, 0, 1);
  c.crosses = OT_CROSSES_DP;
  expect_refusal(&m.job, c, "replicas of 128 devices do not fill pool paper of 64");
  c = candidate(1, 1, OT_PIPELINE_1F1B, 3, 128);
  c.crosses = OT_CROSSES_DP;
  expect_refusal(&m.job, c, "zero 3 over dp_shard=128 crosses pools");
  c.zero = 1;
  assert_int_equal(ot_candidate_check(&m.job, &c), OT_OK);
  destroy(&m);
}

static void clusters_of_pools_are_checked(void **state) {
  (void)state;
  mixed m;
  ot_cluster out;
  create_equal(NULL, &m);
  const ot_link_level *const between = &m.paper.cluster.level[1];
  assert_int_equal(ot_cluster_join("one", m.pools, 1, between, &out), OT_USAGE);
  assert_int_equal(ot_cluster_join("none", m.pools, 2, &(ot_link_level){0}, &out), OT_USAGE);
  assert_int_equal(ot_cluster_share(&m.cluster, 128, 1, &out), OT_USAGE);
  assert_int_equal(ot_cluster_resize(&m.cluster, 64, &out), OT_USAGE);
  m.pools[1].num_devices = 12;
  assert_int_equal(ot_cluster_join("half", m.pools, 2, between, &out), OT_USAGE);
  assert_non_null(ot_text_find(ot_fail_message(), "not whole groups of 8"));
  m.pools[1] = paper_machine(4);
  assert_int_equal(ot_cluster_join("host", m.pools, 2, between, &out), OT_USAGE);
  assert_non_null(ot_text_find(ot_fail_message(), "allowed: accelerators"));
  destroy(&m);
}

// ---- the search ----

static void create_small(int kind, mixed *m) {
  paper_job_create("llama3-8b", 12, 24, 64, &m->paper);
  m->paper.model = tiny_llama();
  m->paper.model.num_layers = 3 + kind;
  m->paper.model.hidden_size = 64;
  m->paper.model.head_dim = 16;
  m->paper.model.rotary_dim = 16;
  m->paper.model.num_heads = m->paper.model.num_kv_heads = 4;
  m->paper.model.intermediate_size = 128;
  if (kind % 2 == 1) m->paper.job.engine = paper_engine("torchtitan");
  static const int devices[] = {4, 8};
  for (int i = 0; i < 2; i++) {
    m->pools[i] = m->paper.cluster;
    m->pools[i].num_devices = devices[(i + kind) % 2];
    m->pools[i].level[0].size = 4;
    m->pools[i].device.flops[OT_BF16] = i == 0 ? 1e10 : 2.7e10;
    const int64_t own = ot_engine_context_bytes(m->paper.job.engine, &m->pools[i].device);
    m->pools[i].device.memory_bytes = own + (i == 0 ? 3000000 : 2000000);
  }
  join(m, 2, &(ot_link_level){.name = "wire", .bytes_per_s = 1e8, .latency_s = 1e-5});
  m->job.given = (ot_candidate){
      .zero = -1, .pipeline = (ot_pipeline)-1, .recompute = OT_RECOMPUTE_NONE, .cp = 1};
}

static void assert_bounded(const mixed *m, const ot_candidate *c) {
  ot_estimate_bound bound;
  const ot_estimate e = estimate(m->estimator, c);
  const ot_bound_request deepest = {.candidate = c, .depth = OT_BOUND_ORDER};
  assert_int_equal(ot_bound_build(m->estimator, &deepest, &bound), OT_OK);
  double work_s;
  assert_int_equal(ot_bound_replay(m->estimator, c, &work_s), OT_OK);
  if (bound.step_s > e.step_s || work_s > e.step_s) {
    char text[256];
    ot_candidate_print(c, text, sizeof text);
    fail_msg("%s: %.17g s, bound %.17g s, replayed %.17g s", text, e.step_s, bound.step_s, work_s);
  }
  const bool could = ot_bound_fits(m->estimator, bound.peak);
  assert_true(could || !e.fits);
}

static void pruned_searches_find_what_exhaustive_ones_find(void **state) {
  (void)state;
  enum { TOP = 10 };
  for (int kind = 0; kind < 4; kind++) {
    mixed m;
    ot_search all, pruned;
    bool crossed[3] = {false};
    create_small(kind, &m);
    build(&m);
    const ot_search_request request = {.job = &m.job, .top = TOP, .exhaustive = true};
    const ot_search_request fast = {.job = &m.job, .top = TOP};
    assert_int_equal(ot_search_build(&request, &m.paper.arena, &all), OT_OK);
    assert_int_equal(ot_search_build(&fast, &m.paper.arena, &pruned), OT_OK);
    assert_true(pruned.num_plans > 0);
    assert_int_equal(pruned.num_plans, all.num_plans);
    for (int i = 0; i < all.num_plans; i++) {
      const ot_candidate *const c = &all.plans[i].candidate;
      assert_int_equal(ot_candidate_compare(&pruned.plans[i].candidate, c), 0);
      assert_true(pruned.plans[i].step_s == all.plans[i].step_s);
      assert_bounded(&m, c);
      crossed[c->crosses] = true;
    }
    assert_false(crossed[OT_CROSSES_NOTHING]);
    destroy(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_pools_are_the_plain_cluster),
      cmocka_unit_test(stages_get_layers_by_rate),
      cmocka_unit_test(replicas_get_micro_batches_by_rate),
      cmocka_unit_test(uneven_rests_go_where_they_cost_least),
      cmocka_unit_test(updates_begin_when_all_pools_are_ready),
      cmocka_unit_test(gradients_cross_where_replicas_do),
      cmocka_unit_test(crossing_messages_use_the_links_between),
      cmocka_unit_test(memory_is_checked_in_each_pool),
      cmocka_unit_test(stages_replicas_and_shards_are_whole),
      cmocka_unit_test(clusters_of_pools_are_checked),
      cmocka_unit_test(pruned_searches_find_what_exhaustive_ones_find),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
