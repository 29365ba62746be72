// SPDX-License-Identifier: Apache-2.0
// run: ranks=1..8 as threads. Clean runs on many meshes give no finding. A value changed on one
// rank, in any class of replicated data, is named with its tensor, axes and rank.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "audit/replicas.h"
#include "base/rng.h"
#include "base/text.h"
#include "support/audit_case.h"

// The change and its result.
typedef struct attempt {
  // Corrupts state of the victim after two steps.
  void (*damage)(audit_rank *rank, const struct attempt *attempt);
  int victim;        // rank
  const char *name;  // parameter
  ot_bucket_copy copy;
  int64_t element;  // index within the victim's shard
  ot_step_scalar scalar;
  ot_batch_field field;
  ot_replica_word word;
  ot_heap heap;
  ot_arena arena;  // of rank 0's report
  ot_audit_report report;
  ot_replica_figures figures;
} attempt;

static ot_replica_moment moment_of(const audit_rank *rank, int micro_batches) {
  const ot_position position = ot_trainer_position(rank->trainer);
  return (ot_replica_moment){.micro_batches = micro_batches,
                             .words = {[OT_WORD_SEED] = rank->run->seed,
                                       [OT_WORD_STEP] = position.step,
                                       [OT_WORD_NEXT_SAMPLE] = position.next_sample,
                                       [OT_WORD_TOKENS] = position.tokens}};
}

static int micro_batches_of(const audit_rank *rank) {
  return (int)(rank->request->batch / rank->request->micro_batch /
               ot_world_data_degree(rank->world));
}

static ot_status look(audit_rank *rank, ot_replicas *replicas, int micro_batches,
                      ot_audit_report *report) {
  const attempt *const a = rank->context;
  ot_replica_moment moment = moment_of(rank, micro_batches);
  const bool off = micro_batches > 0 && !a->damage && a->word > 0 && rank->rank == a->victim;
  if (off) moment.words[a->word]++;
  return ot_replicas_compare(replicas, &moment, report);
}

static ot_status audit(audit_rank *rank, ot_replicas *replicas) {
  attempt *const a = rank->context;
  ot_heap heap = {0};
  ot_arena own = ot_heap_arena_create(&heap);
  ot_audit_report report = {.audit = "ranks", .arena = rank->rank == 0 ? &a->arena : &own};
  ot_step_report step;
  OT_TRY(look(rank, replicas, 0, &report));
  OT_TRY(audit_step(rank, &step));
  OT_TRY(audit_step(rank, &step));
  if (a->damage && rank->rank == a->victim) a->damage(rank, a);
  OT_TRY(look(rank, replicas, micro_batches_of(rank), &report));
  if (rank->rank == 0) a->report = report;
  if (rank->rank == 0) a->figures = ot_replicas_figures(replicas);
  ot_heap_release(&heap);
  return OT_OK;
}

static ot_status audit_body_of(audit_rank *rank) {
  ot_replicas *replicas = NULL;
  OT_TRY(ot_replicas_create(rank->trainer, &replicas));
  const ot_status status = audit(rank, replicas);
  ot_replicas_destroy(&replicas);
  return status;
}

static void try(const audit_request *request, attempt *a) {
  a->heap = (ot_heap){0};
  a->arena = ot_heap_arena_create(&a->heap);
  const ot_status status = audit_run(request, audit_body_of, a);
  if (status != OT_OK) fail_msg("%s: %s", audit_describe(request), ot_fail_message());
}

// ---- clean runs ----

static void clean_runs_have_no_findings(void **state) {
  (void)state;
  const ot_model gqa = audit_model(2, false), mqa = audit_model(1, true);
  ot_model gpt2 = tiny_gpt2();
  gpt2.vocab_size = gqa.vocab_size;
  const audit_request cases[] = {
      {.model = gqa, .dp_shard = 2, .zero = 1},
      {.model = gqa, .dp_replicate = 2, .zero = 0},
      {.model = gqa, .dp_shard = 2, .zero = 3, .accumulate = OT_ACCUMULATE_SHARDED},
      {.model = gpt2, .dp_replicate = 2, .dp_shard = 2, .zero = 2},
      {.model = gqa, .tp = 2},
      {.model = mqa, .tp = 4},
      {.model = mqa, .tp = 2, .dp_shard = 2, .zero = 3},
      {.model = gqa, .cp = 2},
      {.model = mqa, .pp = 2},
      {.model = gpt2, .pp = 2, .dp_shard = 2, .zero = 1},
      {.model = mqa, .pp = 2, .tp = 2, .dp_shard = 2, .zero = 2},
      {.model = mqa, .cp = 2, .tp = 2, .dp_replicate = 2, .zero = 1},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    audit_request request = cases[i];
    request.batch = 8;
    request.micro_batch = 1;
    attempt a = {0};
    try(&request, &a);
    if (a.report.num_findings > 0) {
      fail_msg("%s: %s", audit_describe(&request), ot_audit_report_print(&a.report));
    }
    const bool pieces_alone = request.zero == 3 && request.tp < 2;
    assert_int_equal(a.figures.compared_bytes > 0, !pieces_alone);
    ot_heap_release(&a.heap);
  }
}

// ---- damage ----

static void flip(ot_executor *executor, int64_t offset, int64_t size) {
  unsigned char bytes[8];
  ot_executor_read(executor, offset, bytes, size);
  bytes[0] ^= 1;  // the last bit
  ot_executor_write(executor, offset, bytes, size);
}

static void damage_copy(audit_rank *rank, const attempt *a) {
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  const ot_parameter *const p = ot_graph_parameter(ot_runtime_any_graph(runtime), a->name);
  assert_non_null(p);
  const ot_bucket_range held = ot_runtime_held_range(runtime, p->block, (ot_parameter_copy)a->copy);
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, (ot_parameter_copy)a->copy));
  const int64_t first = p->offset > held.first ? p->offset : held.first;
  assert_true(first + a->element < held.first + held.count);
  flip(ot_runtime_executor(runtime), held.offset + (first + a->element - held.first) * size, size);
}

static void damage_scalar(audit_rank *rank, const attempt *a) {
  ot_executor *const executor = ot_runtime_executor(ot_trainer_runtime(rank->trainer));
  ot_executor_set_scalar(executor, a->scalar, 1.5 * ot_executor_scalar(executor, a->scalar));
}

// Gives the last micro-batch other rows, or the sample indices of rank 0.
static void damage_batch(audit_rank *rank, const attempt *a) {
  int64_t data[64];
  for (int i = 0; i < 64; i++) data[i] = a->field == OT_BATCH_SAMPLE_IDS ? 777 : 3;
  ot_runtime_load_batch(ot_trainer_runtime(rank->trainer), OT_MODE_TRAIN,
                        micro_batches_of(rank) - 1, a->field, data);
}

static void copy_samples(audit_rank *rank, const attempt *a) {
  const int64_t first = ot_trainer_position(rank->trainer).next_sample - rank->request->batch;
  const int dp = ot_world_data_degree(rank->world);
  (void)a;
  for (int m = 0; m < micro_batches_of(rank); m++) {
    const int64_t sample = first + (int64_t)m * dp;
    ot_runtime_load_batch(ot_trainer_runtime(rank->trainer), OT_MODE_TRAIN, m, OT_BATCH_SAMPLE_IDS,
                          &sample);
  }
}

typedef struct expectation {
  const char *what, *where, *evidence;
} expectation;

static void expect(audit_request request, attempt a, const expectation *expected) {
  request.batch = 8;
  request.micro_batch = 1;
  try(&request, &a);
  const ot_finding *const found = a.report.findings;
  const bool named = a.report.num_findings == 1 && ot_text_equal(found->what, expected->what) &&
                     ot_text_equal(found->where, expected->where) &&
                     ot_text_find(found->evidence, expected->evidence) != NULL;
  if (!named) {
    fail_msg("%s: expected %s, %s, %s; found %s", audit_describe(&request), expected->what,
             expected->where, expected->evidence, ot_audit_report_print(&a.report));
  }
  ot_heap_release(&a.heap);
}

// Models: llama with two KV heads, or with one and a tied embedding.
enum { GQA, MQA };

typedef struct damage_case {
  int model;
  audit_request request;
  attempt attempt;
  expectation expected;
} damage_case;

static void check_cases(const damage_case *cases, int count) {
  for (int i = 0; i < count; i++) {
    audit_request request = cases[i].request;
    request.model = cases[i].model == GQA ? audit_model(2, false) : audit_model(1, true);
    expect(request, cases[i].attempt, &cases[i].expected);
  }
}

static void names_copies_over_data_and_context_parallelism(void **state) {
  (void)state;
  const char *const down = "layers.1.mlp.down.weight";
  const damage_case cases[] = {
      {GQA,
       {.dp_shard = 4, .zero = 1},
       {.damage = damage_copy, .victim = 2, .name = down, .element = 100},
       {"weights_differ", "weights of model.layers.1.mlp.down_proj.weight",
        "after step 2, over dp_shard: rank 2 against ranks 0 1 3, first at element 100: "}},
      {GQA,
       {.dp_replicate = 2, .dp_shard = 2, .zero = 3},
       {.damage = damage_copy, .victim = 3, .name = down},
       {"weights_differ", "weights of model.layers.1.mlp.down_proj.weight",
        "over dp_replicate: rank 3 against rank 1 (no majority"}},
      {GQA,
       {.dp_replicate = 4},
       {.damage = damage_copy, .victim = 1, .name = down, .copy = OT_BUCKET_MOMENT_2},
       {"moments_differ", "second moments of model.layers.1.mlp.down_proj.weight",
        "over dp_replicate: rank 1 against ranks 0 2 3"}},
      {GQA,
       {.dp_replicate = 4, .bf16 = true},
       {.damage = damage_copy, .victim = 0, .name = down, .copy = OT_BUCKET_MASTER},
       {"master_differs", "master weights of model.layers.1.mlp.down_proj.weight",
        "rank 0 against ranks 1 2 3"}},
      {GQA,
       {.cp = 2, .dp_shard = 2, .zero = 1},
       {.damage = damage_copy, .victim = 1, .name = down, .copy = OT_BUCKET_WEIGHT, .element = 5},
       {"weights_differ", "weights of model.layers.1.mlp.down_proj.weight",
        "over dp_shard and cp: rank 1 against ranks 0 2 3, first at element 5: "}},
      {GQA,
       {.cp = 2},
       {.damage = damage_copy, .victim = 1, .name = down, .copy = OT_BUCKET_MOMENT_1},
       {"moments_differ", "first moments of model.layers.1.mlp.down_proj.weight",
        "over cp: rank 1 against rank 0"}},
  };
  check_cases(cases, OT_COUNT(cases));
}

static void names_copies_over_tensor_parallelism(void **state) {
  (void)state;
  const char *const norm = "layers.1.attention_norm.weight";
  const char *const qkv = "layers.0.attention.qkv.weight";
  const damage_case cases[] = {
      {MQA,
       {.tp = 4},
       {.damage = damage_copy, .victim = 3, .name = norm, .element = 31},
       {"weights_differ", "weights of model.layers.1.input_layernorm.weight",
        "over tp: rank 3 against ranks 0 1 2, first at element 31: "}},
      {GQA,
       {.tp = 2, .dp_shard = 2, .zero = 1},
       {.damage = damage_copy, .victim = 1, .name = norm, .copy = OT_BUCKET_GRADIENT},
       {"gradients_differ", "gradients of model.layers.1.input_layernorm.weight",
        "over tp: rank 1 against rank 0"}},
      // One query head, then the KV head that all ranks share.
      {MQA,
       {.tp = 4},
       {.damage = damage_copy, .victim = 2, .name = qkv, .element = 8 * 32 + 7},
       {"weights_differ", "weights of model.layers.0.self_attn.k_proj.weight",
        "over tp: rank 2 against ranks 0 1 3, first at element 7: "}},
      {GQA,
       {.tp = 4},
       {.damage = damage_copy, .victim = 3, .name = qkv, .element = 16 * 32},
       {"weights_differ", "weights of model.layers.0.self_attn.v_proj.weight",
        "over tp: rank 3 against rank 2 (no majority"}},
  };
  check_cases(cases, OT_COUNT(cases));
}

static void names_the_tied_embedding_over_stages(void **state) {
  (void)state;
  const damage_case cases[] = {
      {MQA,
       {.pp = 2},
       {.damage = damage_copy, .victim = 1, .name = "embedding.tokens.weight", .element = 17},
       {"weights_differ", "weights of model.embed_tokens.weight",
        "over pp: rank 1 against rank 0 (no majority says which is right), first at element 17"}},
      {MQA,
       {.pp = 2, .dp_shard = 2, .zero = 1},
       {.damage = damage_copy,
        .victim = 2,
        .name = "embedding.tokens.weight",
        .copy = OT_BUCKET_MOMENT_1},
       {"moments_differ", "first moments of model.embed_tokens.weight",
        "over pp: rank 2 against rank 0"}},
  };
  check_cases(cases, OT_COUNT(cases));
}

static void names_what_controls_a_step(void **state) {
  (void)state;
  const damage_case cases[] = {
      {GQA,
       {.pp = 2, .dp_shard = 2, .zero = 1},
       {.damage = damage_scalar, .victim = 3, .scalar = OT_SCALAR_LEARNING_RATE},
       {"scalar_differs", "learning rate",
        "over dp_shard and pp: rank 3 against ranks 0 1 2: 0.0015 on rank 3, 0.001 on rank 0"}},
      {GQA,
       {.tp = 2},
       {.damage = damage_scalar, .victim = 1, .scalar = OT_SCALAR_CLIP_FACTOR},
       {"scalar_differs", "clip factor", "over tp: rank 1 against rank 0"}},
      {GQA,
       {.dp_shard = 4},
       {.victim = 2, .word = OT_WORD_NEXT_SAMPLE},
       {"counter_differs", "next sample",
        "rank 2 against ranks 0 1 3: 17 on rank 2, 16 on rank 0"}},
  };
  check_cases(cases, OT_COUNT(cases));
}

static void names_wrong_batches(void **state) {
  (void)state;
  const damage_case cases[] = {
      {GQA,
       {.tp = 2},
       {.damage = damage_batch, .victim = 1, .field = OT_BATCH_TOKENS},
       {"batch_differs", "tokens", "over tp: rank 1 against rank 0"}},
      {GQA,
       {.pp = 2, .dp_shard = 2},
       {.damage = damage_batch, .victim = 2, .field = OT_BATCH_TARGETS},
       {"batch_differs", "targets", "over pp: rank 2 against rank 0"}},
      {GQA,
       {.cp = 4},
       {.damage = damage_batch, .victim = 3, .field = OT_BATCH_SAMPLE_IDS},
       {"batch_differs", "sample numbers", "over cp: rank 3 against ranks 0 1 2"}},
      {GQA,
       {.dp_shard = 2, .zero = 1},
       {.damage = copy_samples, .victim = 1},
       {"samples_shared", "ranks 0 and 1", "trained on the same samples"}},
  };
  check_cases(cases, OT_COUNT(cases));
}

// ---- many bits ----

enum { TRIALS = 200 };

typedef struct bit_trial {
  int victim, parameter, bit;
  ot_bucket_copy copy;
  int64_t element;
} bit_trial;

static uint64_t draw(int trial, uint64_t what, uint64_t bound) {
  return ot_rng_below(17, what, (uint64_t)trial, bound);
}

static bit_trial trial_at(const audit_rank *rank, int trial) {
  const ot_graph *const graph = ot_runtime_any_graph(ot_trainer_runtime(rank->trainer));
  bit_trial t = {.victim = (int)draw(trial, 1, (uint64_t)rank->ranks),
                 .bit = (int)draw(trial, 2, 32),
                 .copy = (ot_bucket_copy)draw(trial, 3, OT_BUCKET_MASTER)};
  do {
    t.parameter = (int)draw(trial++, 4, (uint64_t)graph->num_parameters);
  } while (graph->parameters[t.parameter].tied_to >= 0);
  const int64_t elements = ot_parameter_elements(&graph->parameters[t.parameter]);
  t.element = (int64_t)draw(trial, 5, (uint64_t)elements);
  return t;
}

static void flip_bit(audit_rank *rank, const bit_trial *t) {
  ot_runtime *const runtime = ot_trainer_runtime(rank->trainer);
  const ot_parameter *const p = &ot_runtime_any_graph(runtime)->parameters[t->parameter];
  const ot_bucket_range held = ot_runtime_held_range(runtime, p->block, (ot_parameter_copy)t->copy);
  const int64_t offset = held.offset + (p->offset + t->element - held.first) * 4;
  uint32_t word;
  ot_executor_read(ot_runtime_executor(runtime), offset, &word, sizeof word);
  word ^= 1u << t->bit;
  ot_executor_write(ot_runtime_executor(runtime), offset, &word, sizeof word);
}

// True if the report names the part and the rank, and no other rank.
static bool names(const audit_rank *rank, const bit_trial *t, const ot_audit_report *report) {
  const ot_graph *const graph = ot_runtime_any_graph(ot_trainer_runtime(rank->trainer));
  const ot_parameter *const p = &graph->parameters[t->parameter];
  int part = 0;
  while (t->element / p->cols >= p->parts[part].first_row + p->parts[part].rows) part++;
  char odd[32], first[48];
  snprintf(odd, sizeof odd, ": rank %d against ranks ", t->victim);
  snprintf(first, sizeof first,
           "first at element %lld: ", (long long)(t->element - p->parts[part].first_row * p->cols));
  return report->num_findings == 1 &&
         ot_text_ends_with(report->findings[0].where, p->parts[part].hf_name) &&
         ot_text_find(report->findings[0].evidence, odd) &&
         ot_text_find(report->findings[0].evidence, first);
}

static ot_status try_bit(audit_rank *rank, ot_replicas *replicas, int trial) {
  const bit_trial t = trial_at(rank, trial);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report = {.audit = "ranks", .arena = &arena};
  if (rank->rank == t.victim) flip_bit(rank, &t);
  OT_TRY(look(rank, replicas, micro_batches_of(rank), &report));
  if (rank->rank == t.victim) flip_bit(rank, &t);
  const bool named = names(rank, &t, &report);
  if (!named) ot_fail(OT_BUG, "trial %d: %s", trial, ot_audit_report_print(&report));
  ot_heap_release(&heap);
  return named ? OT_OK : OT_BUG;
}

static ot_status try_bits(audit_rank *rank) {
  ot_replicas *replicas = NULL;
  ot_step_report step;
  OT_TRY(ot_replicas_create(rank->trainer, &replicas));
  ot_status status = audit_step(rank, &step);
  for (int i = 0; i < TRIALS && status == OT_OK; i++) status = try_bit(rank, replicas, i);
  ot_replicas_destroy(&replicas);
  return status;
}

static void every_flipped_bit_is_found_and_named(void **state) {
  (void)state;
  attempt a = {0};
  const audit_request request = {
      .model = audit_model(2, false), .dp_replicate = 4, .batch = 8, .micro_batch = 1};
  if (audit_run(&request, try_bits, &a) != OT_OK) fail_msg("%s", ot_fail_message());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clean_runs_have_no_findings),
      cmocka_unit_test(names_copies_over_data_and_context_parallelism),
      cmocka_unit_test(names_copies_over_tensor_parallelism),
      cmocka_unit_test(names_the_tied_embedding_over_stages),
      cmocka_unit_test(names_what_controls_a_step),
      cmocka_unit_test(names_wrong_batches),
      cmocka_unit_test(every_flipped_bit_is_found_and_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
