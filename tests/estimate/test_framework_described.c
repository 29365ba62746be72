// SPDX-License-Identifier: Apache-2.0
// run: any machine. Other frameworks. Expert parallelism: per-rank memory against hand counts,
// traffic, and valid degrees. A tied embedding on two stages.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "host/heap.h"
#include "support/paper_job.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { DEVICES = 16, LAYERS = 2, EXPERTS = 8, WIDTH = 64, EXPERT_WIDTH = 96 };

static ot_model model_of_experts(void) {
  ot_model model = tiny_llama();
  model.family = OT_FAMILY_QWEN3_MOE;
  model.num_layers = LAYERS;
  model.hidden_size = WIDTH;
  model.moe = (ot_moe){.num_experts = EXPERTS,
                       .experts_per_token = 2,
                       .expert_size = EXPERT_WIDTH,
                       .scale = 1,
                       .num_groups = 1,
                       .groups_per_token = 1,
                       .capacity_factor = 1};
  for (int i = 0; i < LAYERS; i++) model.moe.layer[i] = true;
  return model;
}

static ot_cluster two_nodes(void) {
  ot_cluster cluster = {
      .name = "two nodes",
      .num_devices = DEVICES,
      .device = {.name = "abacus",
                 .other_flops_per_s = 1e12,
                 .memory_bytes_per_s = 1e12,
                 .memory_bytes = 80000000000,
                 .processors = 100},
      .num_levels = 2,
      .level = {{.name = "node", .size = 8, .bytes_per_s = 1e11, .latency_s = 1e-6},
                {.name = "net", .size = DEVICES, .bytes_per_s = 1e10, .latency_s = 5e-6}}};
  cluster.device.flops[OT_BF16] = 1e14;
  cluster.device.flops[OT_F32] = 1e13;
  return cluster;
}

static ot_candidate split_of(int ep) {
  return (ot_candidate){.tp = 1,
                        .pp = 1,
                        .vpp = 1,
                        .cp = 1,
                        .ep = ep,
                        .etp = 1,
                        .dp = DEVICES,
                        .dp_shard = DEVICES,
                        .zero = 1,
                        .micro_batch_size = 1,
                        .micro_batches = 2,
                        .pipeline = OT_PIPELINE_1F1B,
                        .recompute = OT_RECOMPUTE_NONE};
}

// A framework with default expert handling, except what a test sets.
static ot_engine plain_engine(void) {
  ot_engine engine = *paper_engine("megatron-core");
  engine.sorts_received = false;
  engine.expert_bias_bytes[0] = engine.expert_bias_bytes[1] = 0;
  engine.kernels.host_ops = engine.kernels.expert_ops = engine.kernels.group_ops = 0;
  return engine;
}

typedef struct question {
  const ot_engine *engine;
  bool biases;         // of experts
  bool tied;           // embedding and head
  int64_t vocab_size;  // 0: a small one
  double flops_f8;
  ot_candidate candidate;
} question;

static ot_status ask(const question *q, ot_estimate *out) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model model = model_of_experts();
  model.moe.biases = q->biases;
  model.tie_word_embeddings = q->tied;
  if (q->candidate.tp > 1) model.num_heads = model.num_kv_heads = 4;
  if (q->vocab_size > 0) model.vocab_size = q->vocab_size;
  ot_cluster cluster = two_nodes();
  cluster.device.flops[OT_F8] = q->flops_f8;
  const ot_job job = {.model = &model,
                      .cluster = &cluster,
                      .engine = q->engine,
                      .recipe = *ot_recipe_find("bf16"),
                      .devices = DEVICES,
                      .global_batch_size = q->candidate.micro_batches * q->candidate.dp,
                      .sequence_length = 256};
  ot_estimator *estimator;
  ot_status status = ot_candidate_check(&job, &q->candidate);
  if (status == OT_OK) status = ot_estimator_build(&job, &arena, &estimator);
  if (status == OT_OK) status = ot_estimate_build(estimator, &q->candidate, out);
  ot_heap_release(&heap);
  return status;
}

static ot_status estimate(int ep, ot_estimate *out) {
  return ask(&(question){.engine = paper_engine("megatron-core"), .candidate = split_of(ep)}, out);
}

static ot_estimate answer(const question *q) {
  ot_estimate e;
  if (ask(q, &e) != OT_OK) fail_msg("%s", ot_fail_message());
  return e;
}

static ot_estimate must_estimate(int ep) {
  ot_estimate e;
  if (estimate(ep, &e) != OT_OK) fail_msg("%s", ot_fail_message());
  return e;
}

static void a_rank_holds_its_part_of_the_experts(void **state) {
  (void)state;
  const ot_estimate all = must_estimate(1), part = must_estimate(4);
  // Three matrices per expert, in two layers, of two bytes; three quarters of them are on other
  // ranks.
  const int64_t experts = (int64_t)LAYERS * EXPERTS * 3 * WIDTH * EXPERT_WIDTH;
  assert_int_equal(all.memory.weights - part.memory.weights, 2 * experts * 3 / 4);
  assert_int_equal(all.memory.gradients - part.memory.gradients, 2 * experts * 3 / 4);
  // States are sharded over the ranks with equal weights: 12 bytes over all 16 ranks in both.
  assert_true(all.memory.optimizer - part.memory.optimizer <= 12);
}

static void tokens_are_sent_to_remote_experts_only(void **state) {
  (void)state;
  const double alone = must_estimate(1).exposed_s[OT_TIMELINE_EP];
  const double near = must_estimate(8).exposed_s[OT_TIMELINE_EP];
  assert_true(alone == 0);
  assert_true(near > 0);
}

static ot_estimate hidden(ot_candidate c, bool hides) {
  ot_engine engine = plain_engine();
  engine.overlap_expert = hides;
  return answer(&(question){.engine = &engine, .candidate = c});
}

// The first forward and the last backward have no partner (Megatron-core's combined 1F1B): of m
// micro-batches, one's tokens are waited for. The forward of one more layer is saved, not that of
// a whole micro-batch.
static void overlapped_dispatch_exposes_one_micro_batch(void **state) {
  (void)state;
  for (int m = 2; m <= 8; m *= 2) {
    ot_candidate c = split_of(8);
    c.micro_batches = m;
    const ot_estimate waits = hidden(c, false), hides = hidden(c, true);
    const double all_s = waits.exposed_s[OT_TIMELINE_EP];
    assert_true(fabs(hides.exposed_s[OT_TIMELINE_EP] / all_s - 1.0 / m) < 1e-9);
    const double more = (double)(hides.memory.activations - waits.memory.activations);
    assert_true(more > 0 && more < 0.55 * (double)waits.memory.activations);
  }
}

// Megatron-core's weighted_bias_swiglu_impl with fp8_input_store: gate and up of the two experts of
// a token, 2 x 2 x 96 elements, are saved in one byte in place of two, and cast to it and back.
static void gates_in_8_bits_are_half_the_bytes(void **state) {
  (void)state;
  ot_engine engine = plain_engine();
  const question q = {.engine = &engine, .candidate = split_of(8)};
  const ot_estimate wide = answer(&q);
  engine.fp8_activation_inputs = true;
  const ot_estimate narrow = answer(&q);
  const int64_t elements = 256 * 2 * 2 * EXPERT_WIDTH;
  assert_int_equal(wide.memory.activations - narrow.memory.activations, LAYERS * elements);
  // 3 bytes an element in each of the passes of two micro-batches.
  const double moved = 2.0 * 2 * LAYERS * 3 * (double)elements;
  assert_true(fabs((narrow.step_s - wide.step_s) * 1e12 / moved - 1) < 1e-6);
  engine.kernels.fused_experts = true;
  const double fused_s = answer(&q).step_s;
  engine.fp8_activation_inputs = false;
  assert_true(fused_s == answer(&q).step_s);
}

// Pairs need several chunks on a stage, and an exchange that is not recomputed.
static void other_orders_hide_no_dispatch(void **state) {
  (void)state;
  ot_candidate c = split_of(4);
  c.micro_batches = 8;
  const double alone_s = hidden(c, true).exposed_s[OT_TIMELINE_EP];
  c.recompute = OT_RECOMPUTE_FULL;
  assert_true(hidden(c, true).step_s == hidden(c, false).step_s);
  c.recompute = OT_RECOMPUTE_NONE;
  c.pp = 2;
  c.dp = c.dp_shard = DEVICES / 2;
  assert_true(hidden(c, true).step_s == hidden(c, false).step_s);
  assert_true(hidden(c, true).exposed_s[OT_TIMELINE_EP] > 2 * alone_s);
  c.vpp = 2;
  c.pipeline = OT_PIPELINE_INTERLEAVED;
  assert_true(hidden(c, true).exposed_s[OT_TIMELINE_EP] <
              0.6 * hidden(c, false).exposed_s[OT_TIMELINE_EP]);
}

// In the pairs of dualpipe-v: warm-up and cool-down expose it, as do other schedules.
static void pairs_hide_the_dispatch_of_each_other(void **state) {
  (void)state;
  ot_engine engine = plain_engine();
  engine.runs.pipelines.num = 0;  // any
  question q = {.engine = &engine, .candidate = split_of(4)};
  q.candidate.pp = q.candidate.vpp = 2;
  q.candidate.micro_batches = 8;
  q.candidate.dp = q.candidate.dp_shard = DEVICES / 2;
  double exposed_s[2][2];
  for (int pairs = 0; pairs < 2; pairs++) {
    for (int v = 0; v < 2; v++) {
      engine.overlap_pairs = pairs;
      q.candidate.pipeline = v ? OT_PIPELINE_DUALPIPE_V : OT_PIPELINE_ZB_V;
      exposed_s[pairs][v] = answer(&q).exposed_s[OT_TIMELINE_EP];
    }
  }
  assert_true(exposed_s[0][0] > 0 && fabs(exposed_s[0][1] / exposed_s[0][0] - 1) < 1e-9);
  assert_true(exposed_s[1][0] == exposed_s[0][0]);
  assert_true(exposed_s[1][1] > 0 && exposed_s[1][1] < exposed_s[0][1]);
}

// A plain all-to-all sends both copies of a token, the others 8 (1 - (7/8)^2) of them.
static void a_plain_exchange_sends_every_copy(void **state) {
  (void)state;
  ot_engine engine = plain_engine();
  question q = {.engine = &engine, .candidate = split_of(8)};
  engine.sends_copies = false;
  const double once_s = answer(&q).exposed_s[OT_TIMELINE_EP];
  engine.sends_copies = true;
  const double copies_s = answer(&q).exposed_s[OT_TIMELINE_EP];
  const double most = 2 / (8 * (1 - 7.0 / 8 * 7 / 8));
  assert_true(copies_s > once_s && copies_s < most * once_s);
  ot_engine_apply(&(ot_engine_options){.fused_dispatch = OT_SWITCH_ON}, &engine);
  assert_false(engine.sends_copies);
}

// The mean of both, on devices that are as new as the overlap; none on others.
static void overlap_of_tp_that_is_not_known_is_half(void **state) {
  (void)state;
  double step_s[2][3];
  const ot_tensor_overlap overlaps[] = {OT_TENSOR_OVERLAP_NONE, OT_TENSOR_OVERLAP_PIECES,
                                        OT_TENSOR_OVERLAP_HALF};
  ot_engine engine = plain_engine();
  question q = {.engine = &engine, .candidate = split_of(1)};
  q.candidate.tp = 2;
  q.candidate.dp = q.candidate.dp_shard = DEVICES / 2;
  for (int recent = 0; recent < 2; recent++) {
    q.flops_f8 = recent ? 2e14 : 0;
    for (int i = 0; i < 3; i++) {
      engine.overlap_tensor = overlaps[i];
      step_s[recent][i] = answer(&q).step_s;
    }
  }
  assert_true(step_s[0][2] == step_s[0][0] && step_s[0][1] < step_s[0][0]);
  assert_true(fabs(step_s[1][2] / ((step_s[1][0] + step_s[1][1]) / 2) - 1) < 1e-9);
}

// Received tokens: 256 tokens, each sent to 8 (1 - (7/8)^2) of 8 ranks, read and written twice,
// forward and backward, in each of 2 layers and 2 micro-batches.
static void received_tokens_are_sorted_by_separate_passes(void **state) {
  (void)state;
  ot_engine engine = plain_engine();
  question q = {.engine = &engine, .candidate = split_of(8)};
  const double sent_s = answer(&q).step_s;
  engine.sorts_received = true;
  const double places = 8 * (1 - 7.0 / 8 * 7 / 8);
  const double bytes = 2.0 * 4 * 256 * WIDTH * 2 * places * LAYERS * 2;
  const double more_s = answer(&q).step_s - sent_s;
  if (fabs(more_s / (bytes / 1e12) - 1) > 0.02)
    fail_msg("%.9g, by hand %.9g", more_s, bytes / 1e12);
}

static void biases_are_added_to_expert_outputs(void **state) {
  (void)state;
  ot_engine engine = plain_engine();
  question q = {.engine = &engine, .candidate = split_of(1)};
  q.biases = true;
  const double without_s = answer(&q).step_s;
  engine.expert_bias_bytes[0] = 28;
  engine.expert_bias_bytes[1] = 40;
  const double more_s = answer(&q).step_s - without_s;
  const double bytes = 68.0 * 256 * 2 * WIDTH * LAYERS * 2;
  if (fabs(more_s / (bytes / 1e12) - 1) > 0.02)
    fail_msg("%.9g, by hand %.9g", more_s, bytes / 1e12);
}

static double recompute_s(ot_module_set modules) {
  ot_engine engine = plain_engine();
  engine.runs.modules = ot_engine_orthant.runs.modules;
  question q = {.engine = &engine, .candidate = split_of(1)};
  q.candidate.recompute = OT_RECOMPUTE_SELECTIVE;
  q.candidate.modules = modules;
  return answer(&q).recompute_s;
}

// Each module costs its own time only; a framework that is given no module recomputes attention.
static void recompute_covers_the_modules_given(void **state) {
  (void)state;
  const ot_module_set parts[] = {OT_MODULE_SET(OT_MODULE_CORE_ATTN),
                                 OT_MODULE_SET(OT_MODULE_LAYERNORM),
                                 OT_MODULE_SET(OT_MODULE_MOE_ACT)};
  ot_module_set all = 0;
  double sum_s = 0;
  for (int i = 0; i < OT_COUNT(parts); i++) {
    assert_true(recompute_s(parts[i]) > 0);
    sum_s += recompute_s(parts[i]);
    all |= parts[i];
  }
  assert_true(fabs(recompute_s(all) / sum_s - 1) < 1e-9);
  assert_true(recompute_s(0) == recompute_s(parts[0]));
  // Two norms of 256 tokens, read and written, in each of 2 layers and 2 micro-batches.
  const double norms_s = 2.0 * 2 * 256 * WIDTH * 2 * LAYERS * 2 / 1e12;
  assert_true(recompute_s(parts[1]) > norms_s && recompute_s(parts[1]) < 1.1 * norms_s);
  // The wide GEMM of experts: 2 rows per expert of 256, gate and up.
  const double wide_s = 2.0 * 512 * WIDTH * 2 * EXPERT_WIDTH * LAYERS * 2 / 1e14;
  assert_true(recompute_s(OT_MODULE_SET(OT_MODULE_MOE)) > wide_s + recompute_s(parts[2]));
}

// The first and the last stage hold the table. Its gradients are reduced over both, here on two
// nodes: half of the bytes of its type in each direction.
static void a_tied_embedding_on_two_stages_is_reduced_over_them(void **state) {
  (void)state;
  question q = {
      .engine = paper_engine("nanotron"), .vocab_size = 1 << 18, .candidate = split_of(1)};
  q.candidate.pp = 2;
  q.candidate.dp = q.candidate.dp_shard = DEVICES / 2;
  const ot_estimate apart = answer(&q);
  q.tied = true;
  const ot_estimate tied = answer(&q);
  const double bytes = ot_recipe_find("bf16")->reduce_bytes * (double)(q.vocab_size * WIDTH);
  const double more_s = tied.exposed_s[OT_TIMELINE_PP] - apart.exposed_s[OT_TIMELINE_PP];
  assert_true(more_s > bytes / two_nodes().level[1].bytes_per_s);
}

static void ep_divides_experts_and_ranks(void **state) {
  (void)state;
  ot_estimate e;
  assert_int_equal(estimate(3, &e), OT_USAGE);
  assert_message_has("ep=3 does not divide both the 8 experts and the 16 ranks");
  assert_int_equal(estimate(16, &e), OT_USAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_holds_its_part_of_the_experts),
      cmocka_unit_test(tokens_are_sent_to_remote_experts_only),
      cmocka_unit_test(overlapped_dispatch_exposes_one_micro_batch),
      cmocka_unit_test(other_orders_hide_no_dispatch),
      cmocka_unit_test(gates_in_8_bits_are_half_the_bytes),
      cmocka_unit_test(pairs_hide_the_dispatch_of_each_other),
      cmocka_unit_test(a_plain_exchange_sends_every_copy),
      cmocka_unit_test(overlap_of_tp_that_is_not_known_is_half),
      cmocka_unit_test(received_tokens_are_sorted_by_separate_passes),
      cmocka_unit_test(biases_are_added_to_expert_outputs),
      cmocka_unit_test(recompute_covers_the_modules_given),
      cmocka_unit_test(a_tied_embedding_on_two_stages_is_reduced_over_them),
      cmocka_unit_test(ep_divides_experts_and_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
