// SPDX-License-Identifier: Apache-2.0
// run: any machine. Memory of other frameworks against their papers and documentation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "estimate/estimate.h"
#include "estimate/job_check.h"
#include "support/paper_job.h"

static const double GIB = 1024.0 * 1024 * 1024;

// A model of the GPT-3 family, or of Llama's with `gated`.
typedef struct shape {
  int layers, hidden, heads, ffn, vocab;
  bool gated;
} shape;

typedef struct question {
  const char *engine;
  const char *recipe;  // NULL: the framework's
  shape shape;
  ot_candidate candidate;
  int64_t sequence;
} question;

static ot_memory_estimate memory_of(question q) {
  paper_job p;
  ot_candidate *const c = &q.candidate;
  const int devices = c->tp * c->pp * c->dp;
  paper_job_create(q.shape.gated ? "llama2-7b" : "gpt3-175b", devices,
                   c->micro_batch_size * c->micro_batches * c->dp, q.sequence, &p);
  p.model.num_layers = q.shape.layers;
  p.model.hidden_size = q.shape.hidden;
  p.model.num_heads = p.model.num_kv_heads = q.shape.heads;
  p.model.head_dim = q.shape.hidden / q.shape.heads;
  if (q.shape.gated) p.model.rotary_dim = p.model.head_dim;
  p.model.intermediate_size = q.shape.ffn;
  p.model.vocab_size = q.shape.vocab;
  p.model.bos_id = -1;
  p.model.num_eos = 0;
  p.cluster.device.flops[OT_F16] = p.cluster.device.flops[OT_BF16];
  ot_engine engine = *paper_engine(q.engine);
  engine.runs = (ot_abilities){.modules = ot_engine_orthant.runs.modules};  // papers compare what
                                                                            // not all versions run
  p.job.engine = &engine;
  p.job.recipe = *ot_recipe_find(q.recipe ? q.recipe : p.job.engine->recipe);
  c->ep = c->etp = c->cp = 1;
  if (c->vpp == 0) c->vpp = 1;
  if (c->dp_shard == 0) c->dp_shard = c->dp;
  ot_estimator *estimator;
  ot_estimate estimate;
  if (ot_estimator_build(&p.job, &p.arena, &estimator) != OT_OK ||
      ot_candidate_check(&p.job, c) != OT_OK ||
      ot_estimate_build(estimator, c, &estimate) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  paper_job_destroy(&p);
  return estimate.memory;
}

static void assert_near(double found, double expected, double share, const char *what) {
  const double error = found / expected - 1;
  if (error >= -share && error <= share) return;
  fail_msg("%s: %.6g, expected %.6g (%+.2f %%)", what, found, expected, 100 * error);
}

// ---- activations ----

// Memory that one more layer saves per micro-batch.
static double kept_by_layer(question q) {
  q.shape.layers = 2;
  const double two = (double)memory_of(q).activations;
  q.shape.layers = 1;
  return two - (double)memory_of(q).activations;
}

enum { S = 2048, B = 2, H = 4096, A = 32, T = 4 };

static question layer_of_gpt(const char *engine, ot_recompute recompute, bool whole) {
  return (question){.engine = engine,
                    .shape = {.hidden = H, .heads = A, .ffn = 4 * H, .vocab = 51200},
                    .candidate = {.tp = T,
                                  .pp = 1,
                                  .dp = 1,
                                  .micro_batch_size = B,
                                  .micro_batches = 1,
                                  .recompute = recompute,
                                  .no_sequence_parallel = whole},
                    .sequence = S};
}

// Korthikanti et al. 2022, table 2, which omits statistics of norms.
static void layers_keep_what_table_2_of_korthikanti_says(void **state) {
  (void)state;
  const double sbh = (double)S * B * H, scores = 5.0 * A * S / H;
  const char *const sp = "megatron-2022", *const tp = "megatron-2021";
  assert_near(kept_by_layer(layer_of_gpt(tp, OT_RECOMPUTE_NONE, true)),
              sbh * (10 + 24.0 / T + scores / T), 0.002, "tensor parallelism");
  assert_near(kept_by_layer(layer_of_gpt(sp, OT_RECOMPUTE_NONE, false)), sbh / T * (34 + scores),
              0.002, "with sequence parallelism");
  assert_near(kept_by_layer(layer_of_gpt(tp, OT_RECOMPUTE_SELECTIVE, true)), sbh * (10 + 24.0 / T),
              0.002, "selective recompute");
  assert_near(kept_by_layer(layer_of_gpt(sp, OT_RECOMPUTE_SELECTIVE, false)), sbh / T * 34, 0.002,
              "selective recompute with sequence parallelism");
  assert_near(kept_by_layer(layer_of_gpt(tp, OT_RECOMPUTE_FULL, true)), 2 * sbh, 0.002,
              "full recompute");
}

// Korthikanti et al. 2022, section 4.1: of the 34 sbh of a layer, inputs of its two column-parallel
// GEMMs are 4, made by norms from what is saved anyway; the input of GELU and that of the GEMM
// after it 8 each; the scores belong to the attention core.
static void modules_save_what_korthikanti_counts_for_them(void **state) {
  (void)state;
  static const struct {
    ot_module_set modules;
    double least;  // of 34 sbh/t
    bool scores;
  } cases[] = {
      {OT_MODULE_SET(OT_MODULE_CORE_ATTN), 34, false},
      {OT_MODULE_SET(OT_MODULE_LAYERNORM), 30, true},
      {OT_MODULE_SET(OT_MODULE_MLP), 18, true},
      {OT_MODULE_SET(OT_MODULE_LAYERNORM) | OT_MODULE_SET(OT_MODULE_MLP), 14, true},
      {OT_MODULE_SET(OT_MODULE_CORE_ATTN) | OT_MODULE_SET(OT_MODULE_LAYERNORM), 30, false},
  };
  const double sbh = (double)S * B * H, scores = 5.0 * A * S / H;
  for (int i = 0; i < OT_COUNT(cases); i++) {
    question q = layer_of_gpt("megatron-2022", OT_RECOMPUTE_SELECTIVE, false);
    q.candidate.modules = cases[i].modules;
    char name[OT_MODULES_BYTES];
    ot_module_set_print(cases[i].modules, ", ", name, sizeof name);
    assert_near(kept_by_layer(q), sbh / T * (cases[i].least + (cases[i].scores ? scores : 0)),
                0.002, name);
  }
}

// Activations of the first layers, of which three are dense.
static double deepseek_kept(int layers, ot_module_set modules) {
  const ot_candidate c = {.tp = 1,
                          .pp = 1,
                          .vpp = 1,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .dp = 1,
                          .dp_shard = 1,
                          .micro_batch_size = 1,
                          .micro_batches = 1,
                          .recompute = OT_RECOMPUTE_SELECTIVE,
                          .modules = modules,
                          .pipeline = OT_PIPELINE_1F1B};
  paper_job p;
  paper_job_create("deepseek-v3", 1, 1, 4096, &p);
  p.model.num_layers = layers;
  p.job.engine = paper_engine("megatron-core");
  p.job.recipe = *ot_recipe_find("bf16");
  ot_estimator *estimator;
  ot_estimate estimate;
  if (ot_estimator_build(&p.job, &p.arena, &estimator) != OT_OK ||
      ot_candidate_check(&p.job, &c) != OT_OK ||
      ot_estimate_build(estimator, &c, &estimate) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  paper_job_destroy(&p);
  return (double)estimate.memory.activations;
}

// DeepSeek-AI 2024, section 2.1 and table of sizes: 128 heads of 128 + 64 keys and 128 values,
// latents of 1536 and 512, 8 of 256 experts of 2048 and a shared one, width 7168. In 2 bytes.
static void a_layer_of_deepseek_keeps_what_its_sizes_say(void **state) {
  (void)state;
  enum { C = 7168, HEADS = 128, K = 192, V = 128, ROPE = 64, QL = 1536, KVL = 512 };
  enum { CHOSEN = 8, WIDE = 2048, TOKENS = 4096 };
  const double qkv = HEADS * (2 * K + V), heads = HEADS * V, gates = 2 * WIDE;
  // Input, norm's output, latents before and after norms, attention, its residual, norm's output,
  // rows and gates of experts, of the shared one.
  const double narrow = QL + KVL, mlp = CHOSEN * (C + gates + WIDE) + gates + WIDE;
  const double whole = C + C + 2 * narrow + qkv + heads + C + C + mlp;
  const struct {
    ot_module_set modules;
    double elements;
  } cases[] = {
      {OT_MODULE_SET(OT_MODULE_CORE_ATTN), whole},
      {OT_MODULE_SET(OT_MODULE_LAYERNORM), whole - 2 * C},
      {OT_MODULE_SET(OT_MODULE_MLA_UP_PROJ), whole - qkv - narrow + ROPE},
      {OT_MODULE_SET(OT_MODULE_MOE_ACT), whole - CHOSEN * WIDE},
      {OT_MODULE_SET(OT_MODULE_SHARED_EXPERTS), whole - gates - WIDE},
      {OT_MODULE_SET(OT_MODULE_MOE), whole - mlp},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const double one = deepseek_kept(5, cases[i].modules) - deepseek_kept(4, cases[i].modules);
    char name[OT_MODULES_BYTES];
    ot_module_set_print(cases[i].modules, ", ", name, sizeof name);
    assert_near(one, 2 * TOKENS * cases[i].elements, 0.01, name);
  }
}

// Korthikanti et al. 2022, table 3 and figure 1, with tp 8.
static void stages_keep_what_figure_1_of_korthikanti_says(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int layers, hidden, heads, pp, vpp;
    int64_t micro_batch_size, micro_batches;
    double states_gib, whole_gib, least_gib;
  } models[] = {
      {"22B", 48, 6144, 64, 1, 1, 4, 1, 45.56, 59.25, 9.56},
      {"175B", 96, 12288, 96, 8, 3, 1, 64, 45.56, 66.84, 12.35},
      {"530B", 105, 20480, 128, 35, 3, 1, 280, 31.64, 114.02, 23.08},
      {"1T", 128, 25600, 160, 64, 1, 1, 512, 32.96, 131.25, 26.56},
  };
  for (int i = 0; i < OT_COUNT(models); i++) {
    question q = {
        .engine = "megatron-2022",
        .recipe = "bf16-fp32-gradients",
        .shape = {models[i].layers, models[i].hidden, models[i].heads, 4 * models[i].hidden, 51200,
                  false},
        .candidate = {.tp = 8,
                      .pp = models[i].pp,
                      .vpp = models[i].vpp,
                      .dp = 1,
                      .micro_batch_size = models[i].micro_batch_size,
                      .micro_batches = models[i].micro_batches,
                      .pipeline = models[i].vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B,
                      .no_sequence_parallel = true},
        .sequence = S};
    // The paper counts layers only; the first stage also has the token and position tables.
    ot_memory_estimate m = memory_of(q);
    const double table = 18.0 * (51200 / 8 + S) * models[i].hidden;
    assert_near((double)(m.weights + m.gradients + m.optimizer) - table, models[i].states_gib * GIB,
                0.01, models[i].name);
    // Plus the masks of the embedding's dropout.
    assert_near((double)m.activations, models[i].whole_gib * GIB, 0.06, models[i].name);
    q.candidate.recompute = OT_RECOMPUTE_SELECTIVE;
    q.candidate.no_sequence_parallel = false;
    assert_near((double)memory_of(q).activations, models[i].least_gib * GIB, 0.06, models[i].name);
  }
}

// Eager layers also save the activated gate besides gate, up and their product: 2 bytes each.
static void an_eager_gated_mlp_saves_what_compiled_ones_recompute(void **state) {
  (void)state;
  const question q = {
      .shape = {.hidden = H, .heads = A, .ffn = 11008, .vocab = 32000, .gated = true},
      .candidate = {.tp = 1, .pp = 1, .dp = 1, .micro_batch_size = B, .micro_batches = 1},
      .sequence = S};
  const double rows = (double)S * B;
  question eager = q, compiled = q, fused = q;
  fused.engine = "megatron-core";
  eager.engine = "nanotron";
  compiled.engine = "torchtitan";
  // planner: norms in and out, q, k, v, attention, gate, up and product; statistics and 4 A for the
  // log-sum-exp
  assert_near(kept_by_layer(fused), rows * (2 * (8.0 * H + 3 * 11008) + 4 * A), 0.002, "fused");
  assert_near(kept_by_layer(eager), rows * (2 * (8.0 * H + 4 * 11008) + 4 * A), 0.002, "eager");
  assert_near(kept_by_layer(compiled), rows * (2 * (6.0 * H + 2 * 11008) + 4 * A), 0.002,
              "compiled");
  // Every second of q, k, v, o, gate, up, down; attention; and the input.
  compiled.candidate.recompute = OT_RECOMPUTE_SELECTIVE;
  assert_near(kept_by_layer(compiled), rows * (2 * (5.0 * H + 11008) + 4 * A), 0.002, "by op");
}

// ---- states ----

static double state_bytes(const char *engine, const char *recipe, int zero, int dp) {
  const question q = {
      .engine = engine,
      .recipe = recipe,
      .shape = {4, H, A, 4 * H, 50304, false},
      .candidate =
          {.tp = 1, .pp = 1, .dp = dp, .zero = zero, .micro_batch_size = 1, .micro_batches = 1},
      .sequence = S};
  question one = q;
  one.recipe = "fp32";
  one.engine = "megatron-core";
  one.candidate.zero = 0;
  one.candidate.dp = 1;
  const double parameters = (double)memory_of(one).weights / 4;
  const ot_memory_estimate m = memory_of(q);
  return (double)(m.weights + m.gradients + m.optimizer) / parameters;
}

// Megatron-LM, docs/user-guide/features/dist_optimizer.md; Rajbhandari et al. 2020, figure 1.
static void a_parameter_takes_what_the_documents_of_its_software_say(void **state) {
  (void)state;
  static const struct {
    const char *engine, *recipe;
    int zero;
    double whole, shared;  // bytes: whole + shared / N
  } rules[] = {
      {"megatron-core", "bf16-fp32-gradients", 0, 18, 0},
      {"megatron-core", "bf16-fp32-gradients", 1, 6, 12},
      {"megatron-core", "fp16-fp32-copies", 0, 20, 0},
      {"megatron-core", "fp16-fp32-copies", 1, 4, 16},
      {"megatron-core", "fp32", 0, 16, 0},
      {"megatron-core", "fp32", 1, 8, 8},
      {"deepspeed", "fp16", 0, 16, 0},
      {"deepspeed", "fp16", 1, 4, 12},
      {"deepspeed", "fp16", 2, 2, 14},
      {"deepspeed", "fp16", 3, 0, 16},
      {"fsdp", "amp-bf16", 3, 0, 16},
      // the buckets of DistributedDataParallel, in addition to gradients of four bytes
      {"nanotron", "bf16-fp32-gradients", 0, 20, 0},
  };
  for (int i = 0; i < OT_COUNT(rules); i++) {
    for (int dp = 2; dp <= 16; dp *= 8) {
      const double expected = rules[i].whole + rules[i].shared / dp;
      assert_near(state_bytes(rules[i].engine, rules[i].recipe, rules[i].zero, dp), expected, 1e-4,
                  rules[i].recipe);
    }
  }
}

// ---- pipelines ----

// Of 12 h^2 + 13 h elements per layer, up to 1e9 are gathered at once, two bytes each.
static void deepspeed_caches_gathered_weights_up_to_a_limit(void **state) {
  (void)state;
  question q = layer_of_gpt("deepspeed", OT_RECOMPUTE_FULL, true);
  q.candidate.tp = 1;
  q.candidate.dp = 8;
  q.candidate.zero = 3;
  double gathered[4];
  for (int i = 0; i < 4; i++) {
    q.shape.layers = 2 << i;
    gathered[i] = (double)memory_of(q).gathered;
  }
  const double layer = 12.0 * H * H + 13.0 * H;
  assert_near(gathered[1] - gathered[0], 2 * 2 * layer, 1e-3, "four layers over two");
  assert_near(gathered[2] - gathered[1], 2 * (1e9 - 4 * layer), 1e-3, "1e9 over four layers");
  assert_true(gathered[3] == gathered[2]);
}

// nanotron (models/base.py): 16 layers of 4 h^2 + 3 h f and a head of V h, as large as four layers,
// on two stages. Half is 10 layers; the block that exceeds it still goes to the first stage.
static void nanotron_gives_a_stage_with_the_head_fewer_layers(void **state) {
  (void)state;
  const question q = {.engine = "nanotron",
                      .shape = {16, 2048, 32, 8192, 131072, true},
                      .candidate = {.tp = 1,
                                    .pp = 2,
                                    .dp = 1,
                                    .micro_batch_size = 1,
                                    .pipeline = OT_PIPELINE_1F1B,
                                    .micro_batches = 8},
                      .sequence = 4096};
  const ot_memory_estimate m = memory_of(q);
  const double layer = 4.0 * 2048 * 2048 + 3.0 * 2048 * 8192 + 2 * 2048;
  assert_int_equal(m.stage, 0);
  assert_near((double)m.weights, 2 * (131072.0 * 2048 + 11 * layer), 1e-3, "weights");
}

// OneFlow (pipeline_buffer_pass.cpp): buffers for two micro-batches per stage on every stage but
// the last, and one in progress. 1F1B holds two on the first of two stages.
static void oneflow_has_room_for_twice_as_many_micro_batches_as_stages(void **state) {
  (void)state;
  question q = {.engine = "oneflow",
                .shape = {8, 2048, 16, 8192, 512, false},
                .candidate = {.tp = 1,
                              .pp = 2,
                              .dp = 1,
                              .micro_batch_size = 8,
                              .micro_batches = 16,
                              .pipeline = OT_PIPELINE_1F1B,
                              .recompute = OT_RECOMPUTE_FULL},
                .sequence = 2048};
  const double input = 2.0 * 8 * 2048 * 2048, mask = input / 2;
  const ot_memory_estimate m = memory_of(q);
  assert_int_equal(m.stage, 0);
  assert_near((double)m.activations, 5 * (4 * input + mask), 0.01, "oneflow");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_keep_what_table_2_of_korthikanti_says),
      cmocka_unit_test(modules_save_what_korthikanti_counts_for_them),
      cmocka_unit_test(a_layer_of_deepseek_keeps_what_its_sizes_say),
      cmocka_unit_test(stages_keep_what_figure_1_of_korthikanti_says),
      cmocka_unit_test(an_eager_gated_mlp_saves_what_compiled_ones_recompute),
      cmocka_unit_test(a_parameter_takes_what_the_documents_of_its_software_say),
      cmocka_unit_test(deepspeed_caches_gathered_weights_up_to_a_limit),
      cmocka_unit_test(nanotron_gives_a_stage_with_the_head_fewer_layers),
      cmocka_unit_test(oneflow_has_room_for_twice_as_many_micro_batches_as_stages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
