// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: any machine; OT_TESTS=full: every kind of layer in float64, too. The inference engine on a
// model that is sharded over ranks: scores and texts are those of one rank, up to rounding, for
// every kind of layer; on given ranks they do not depend on the load, in not one bit; a rank that
// fails ends all. Ranks are threads and report errors as a status; the test's thread asserts. With
// OT_TEST_DEVICE=cuda, ranks with a GPU each: scores and texts of the CPU; OT_TESTS=full: every
// kind of layer, and ranks that share a GPU, too.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "runtime/inference.h"
#include "support/arena_fixture.h"
#include "support/op_device.h"
#include "support/rank_case_models.h"

enum { SEQUENCES = 7, MOST = 64, PROMPT = 40, MADE = 12 };

// ---- sequences ----

typedef struct result {
  int64_t events;
  int32_t tokens[MOST];
  ot_token_score scores[MOST];
  ot_scored_token top[MOST];  // the second most probable token
} result;

static bool take(void *context, const ot_token_event *event) {
  result *const r = context;
  r->tokens[r->events] = event->token;
  if (event->num_top > 1) r->top[r->events] = event->top[1];
  r->scores[r->events++] = event->score;
  return true;
}

static int64_t prompt_of(int i, int32_t *tokens) {
  const int64_t length = 2 + (i * 11) % (PROMPT - 2);
  for (int64_t t = 0; t < length; t++) {
    tokens[t] = (int32_t)ot_rng_below(5, (uint64_t)(t < 18 ? 0 : i), (uint64_t)t, 61);
  }
  return length;
}

// Every second sequence is scored, with a list of tokens or not; the others are continued.
static ot_status add(ot_inference *engine, int i, result *to) {
  int32_t tokens[MOST];
  const ot_sequence_request request = {.prompt = tokens,
                                       .num_prompt = prompt_of(i, tokens),
                                       .max_tokens = i % 2 == 0 ? 0 : MADE,
                                       .draw = {.top_p = 1, .temperature = i == 3, .seed = 9},
                                       .scores = i % 2 == 0,
                                       .top = i % 4 == 2 ? 2 : 0,
                                       .token = take,
                                       .context = to};
  return ot_inference_add(engine, &request, NULL);
}

// ---- ranks ----

typedef struct setting {
  ot_model model;
  ot_dtype dtype;
  ot_backend backend;
  int ranks, pp, ep, etp;
  ot_inference_shape shape;
  bool alone;    // one sequence after the other
  bool cancels;  // one more sequence, which is cancelled while its rows are under way
  int fails;     // this rank fails when it has its runtime; 0: none
  result *results;
} setting;

static ot_status begin_and_cancel(ot_inference *engine) {
  int32_t tokens[MOST];
  ot_sequence *sequence = NULL;
  const ot_sequence_request request = {
      .prompt = tokens, .num_prompt = prompt_of(3, tokens), .max_tokens = MADE};
  OT_TRY(ot_inference_add(engine, &request, &sequence));
  OT_TRY(ot_inference_step(engine));
  ot_inference_cancel(engine, sequence);
  return OT_OK;
}

static ot_status generate(const setting *s, ot_runtime *runtime) {
  ot_inference *engine = NULL;
  OT_TRY(ot_inference_create(runtime, 61, &engine));
  ot_status status = s->cancels ? begin_and_cancel(engine) : OT_OK;
  for (int i = 0; i < SEQUENCES && status == OT_OK; i++) {
    status = add(engine, i, &s->results[i]);
    if (status == OT_OK && s->alone) status = ot_inference_run(engine);
  }
  if (status == OT_OK) status = ot_inference_run(engine);
  if (status == OT_OK) status = ot_inference_dismiss(engine);
  ot_inference_destroy(&engine);
  return status;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  const setting *const s = context;
  const ot_run_parallel parallel = {.tp = s->ranks / s->pp,
                                    .pp = s->pp,
                                    .vpp = 1,
                                    .cp = 1,
                                    .ep = s->ep,
                                    .etp = s->etp,
                                    .dp_replicate = 1};
  ot_mesh mesh;
  ot_runtime *runtime = NULL;
  OT_TRY(ot_mesh_build(&parallel, s->ranks, &mesh));
  ot_runtime_request request = {
      .rank = {.graph = {.model = &s->model,
                         .compute = s->dtype,
                         .storage = s->dtype,
                         .backend = s->backend,
                         .threads = 1},
               .schedule = {.mesh = s->ranks > 1 ? &mesh : NULL, .rank = ot_comm_rank(comm)}},
      .comm = s->ranks > 1 ? comm : NULL};
  ot_inference_complete(&s->shape, &request.rank);
  OT_TRY(ot_runtime_create(&request, &runtime));
  ot_status status = ot_runtime_initialize(runtime, 3);
  const int rank = ot_comm_rank(comm);
  if (status == OT_OK && rank > 0 && rank == s->fails) {
    status = ot_fail(OT_ENVIRONMENT, "this rank fails");
  } else if (status == OT_OK) {
    status = rank == 0 ? generate(s, runtime) : ot_inference_follow(runtime);
  }
  if (status != OT_OK) ot_comm_fail(comm, status);
  ot_runtime_destroy(&runtime);
  return status;
}

static result *run(setting *s) {
  s->results = ot_arena_array(&arena, SEQUENCES, sizeof *s->results);
  if (s->ep == 0) s->ep = s->etp = 1;
  if (s->pp == 0) s->pp = 1;
  if (ot_comm_run_threads(s->ranks, run_rank, s) != OT_OK) fail_msg("%s", ot_fail_message());
  return s->results;
}

static ot_model model_of(rank_model_kind kind) {
  ot_model model = rank_model(kind, 2, false);
  model.moe.routing = OT_MOE_DROPLESS;
  return model;
}

static double largest_difference(const result *a, const result *b) {
  double worst = 0;
  for (int i = 0; i < SEQUENCES; i++) {
    assert_int_equal(a[i].events, b[i].events);
    assert_true(a[i].events > 1);
    assert_memory_equal(a[i].tokens, b[i].tokens, (size_t)a[i].events * sizeof(int32_t));
    for (int64_t t = 0; t < a[i].events; t++) {
      const ot_token_score *const x = &a[i].scores[t], *const y = &b[i].scores[t];
      assert_int_equal(x->greedy, y->greedy);
      assert_int_equal(a[i].top[t].id, b[i].top[t].id);
      if (x->greedy < 0) continue;
      worst = fmax(worst, fabs(x->logprob - y->logprob));
      worst = fmax(worst, fabs(x->best - y->best));
      worst = fmax(worst, fabs(a[i].top[t].value - b[i].top[t].value));
    }
  }
  return worst;
}

// ---- cases ----

static const ot_inference_shape one = {.slots = 4, .chunk = 16, .positions = MOST};

typedef struct sharding {
  int ranks, pp, ep, etp;
} sharding;

static void compare(setting one_rank, const result *expected, sharding shards, double bound) {
  const char *const kind = one_rank.model.model_type;
  setting many = one_rank;
  many.ranks = shards.ranks;
  many.pp = shards.pp;
  many.cancels = true;
  many.ep = shards.ep;
  many.etp = shards.etp;
  const double worst = largest_difference(expected, run(&many));
  if (getenv("OT_SHOW")) {
    print_message("%s on %d ranks, pp %d, ep %d, bound %g: %g\n", kind, many.ranks, many.pp,
                  many.ep, bound, worst);
  }
  if (!(worst <= bound)) {
    fail_msg("%s on %d ranks, pp %d, ep %d: %g", kind, many.ranks, many.pp, many.ep, worst);
  }
}

static bool is_full(void) { return getenv("OT_TESTS") && strcmp(getenv("OT_TESTS"), "full") == 0; }

static void ranks_score_and_generate_as_one_does(void **state) {
  (void)state;
  static const sharding meshes[] = {{2, 1, 1, 1}, {4, 1, 1, 1}, {2, 1, 2, 1},
                                    {4, 1, 2, 2}, {4, 2, 1, 1}, {3, 3, 1, 1}};
  for (int i = 0; i < 2 * RANK_MODELS; i++) {
    const rank_model_kind kind = (rank_model_kind)(i / 2);
    const ot_dtype dtype = i % 2 == 0 ? OT_F32 : OT_F64;
    if (kind == RANK_DROPOUT || (dtype == OT_F64 && i % 3 != 0 && !is_full())) continue;
    setting alone = {.model = model_of(kind), .dtype = dtype, .ranks = 1, .shape = one};
    const result *const expected = run(&alone);
    for (int m = 0; m < OT_COUNT(meshes); m++) {
      if (meshes[m].ep > 1 && alone.model.moe.num_experts == 0) continue;
      // Stages compute what one rank does; only sums over tp round in another way.
      const bool same_bits = meshes[m].pp == meshes[m].ranks;
      compare(alone, expected, meshes[m], same_bits ? 0 : dtype == OT_F64 ? 1e-12 : 1e-5);
    }
  }
}

static void expect_same_bits(const result *a, const result *b) {
  for (int i = 0; i < SEQUENCES; i++) {
    assert_int_equal(a[i].events, b[i].events);
    for (int64_t t = i % 2 == 0; t < a[i].events; t++) {
      assert_int_equal(a[i].tokens[t], b[i].tokens[t]);
      assert_memory_equal(&a[i].scores[t].logprob, &b[i].scores[t].logprob, sizeof(double));
      assert_memory_equal(&a[i].scores[t].best, &b[i].scores[t].best, sizeof(double));
    }
  }
}

static void bits_do_not_depend_on_the_load(void **state) {
  (void)state;
  const rank_model_kind kinds[] = {RANK_LLAMA, RANK_LATENT, RANK_GPT_OSS};
  for (int k = 0; k < 2 * OT_COUNT(kinds); k++) {
    const ot_model model = model_of(kinds[k / 2]);
    const bool experts = model.moe.num_experts > 0 && k % 2 == 0;
    setting together = {.model = model, .dtype = OT_F32, .ranks = 2, .shape = one};
    together.pp = 1 + k % 2;
    together.ep = experts ? 2 : 1;
    together.etp = 1;
    setting apart = together;
    apart.alone = true;
    apart.shape = (ot_inference_shape){.slots = 2, .chunk = 6, .positions = MOST, .pages = 5};
    expect_same_bits(run(&together), run(&apart));
  }
}

static void a_rank_that_fails_ends_all(void **state) {
  (void)state;
  for (int pp = 1; pp <= 2; pp++) {
    setting s = {.model = model_of(RANK_LLAMA), .dtype = OT_F32, .ranks = 2, .shape = one};
    s.pp = pp;
    s.ep = s.etp = s.fails = 1;
    s.results = ot_arena_array(&arena, SEQUENCES, sizeof *s.results);
    assert_int_equal(ot_comm_run_threads(2, run_rank, &s), OT_ENVIRONMENT);
    assert_non_null(strstr(ot_fail_message(), "this rank fails"));
  }
}

// ---- GPUs ----

enum { GPUS = 4 };

// Stages have the bits of one GPU; tp rounds in another way.
static void compare_on_gpus(rank_model_kind kind, ot_dtype dtype) {
  static const sharding meshes[] = {{4, 2, 1, 1}, {2, 2, 1, 1}, {2, 1, 2, 1}, {3, 3, 1, 1}};
  setting on_cpu = {.model = model_of(kind), .dtype = dtype, .ranks = 1, .shape = one};
  setting on_gpu = on_cpu;
  on_gpu.backend = OT_BACKEND_CUDA;
  const result *const expected = run(&on_cpu), *const same = run(&on_gpu);
  assert_true(largest_difference(expected, same) > 0);  // not the CPU's
  for (int m = 0; m < (is_full() ? OT_COUNT(meshes) : 2); m++) {
    if (meshes[m].ep > 1 && on_cpu.model.moe.num_experts == 0) continue;
    compare(on_gpu, expected, meshes[m], dtype == OT_F64 ? 1e-12 : 1e-5);
    if (meshes[m].pp == meshes[m].ranks) compare(on_gpu, same, meshes[m], 0);
  }
}

static void gpus_score_and_generate_as_one_rank_on_the_cpu(void **state) {
  (void)state;
  for (int gpus = is_full() ? 1 : GPUS; gpus <= GPUS; gpus += GPUS - 1) {
    if (op_device_set_count(gpus) != gpus) skip();
    for (int kind = 0; kind < RANK_MODELS; kind++) {
      if (kind == RANK_DROPOUT || !(kind == RANK_LLAMA || is_full())) continue;
      compare_on_gpus((rank_model_kind)kind, OT_F32);
      if (is_full()) compare_on_gpus((rank_model_kind)kind, OT_F64);
    }
  }
}

int main(void) {
  const struct CMUnitTest gpus[] = {cmocka_unit_test_setup_teardown(
      gpus_score_and_generate_as_one_rank_on_the_cpu, begin, finish)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(ranks_score_and_generate_as_one_does, begin, finish),
      cmocka_unit_test_setup_teardown(bits_do_not_depend_on_the_load, begin, finish),
      cmocka_unit_test_setup_teardown(a_rank_that_fails_ends_all, begin, finish),
  };
  if (op_device_backend() != OT_BACKEND_CPU) return cmocka_run_group_tests(gpus, NULL, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
