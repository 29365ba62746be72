// SPDX-License-Identifier: Apache-2.0
// run: any machine. The inference engine: log-probabilities of every family as transformers
// computes them; the same bits however many sequences run, whatever the chunks and whatever is
// cached; texts that depend on their request only.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "runtime/inference.h"
#include "runtime/model_files.h"
#include "support/arena_fixture.h"
#include "support/parity_case.h"

enum { MOST = 128 };

// ---- a model and an engine ----

typedef struct served {
  ot_model_files files;
  ot_runtime *runtime;
  ot_inference *engine;
} served;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static const char *directory_of(const char *name) {
  return ot_arena_format(&arena, "%s/tests/fixtures/parity/%s", OT_SOURCE_DIR, name);
}

static served serve(const char *name, ot_dtype compute, ot_inference_shape shape) {
  served s = {0};
  const ot_config_request plain = {0};
  must(ot_model_files_open(directory_of(name), OT_CHECKPOINT_HASH_NONE, &plain, &arena, &s.files));
  ot_runtime_request request = {
      .rank = {.graph = {.compute = compute, .storage = compute, .threads = 2}}};
  ot_inference_complete(&shape, &request.rank);
  must(ot_model_files_runtime(&s.files, &request, &s.runtime));
  must(ot_inference_create(s.runtime, s.files.model.vocab_size, &s.engine));
  return s;
}

static void end(served *s) {
  ot_inference_destroy(&s->engine);
  ot_runtime_destroy(&s->runtime);
}

// ---- sequences ----

typedef struct result {
  int64_t events;
  int32_t tokens[MOST];
  ot_token_score scores[MOST];
  int num_top[MOST];
  ot_scored_token top[MOST][OT_MOST_TOP];
  int64_t most;  // events until it ends itself; 0: never
  bool finished;
  ot_finish finish;
} result;

static bool take(void *context, const ot_token_event *event) {
  result *const r = context;
  assert_int_equal(event->index, event->generated ? event->index : r->events);
  r->tokens[r->events] = event->token;
  r->scores[r->events] = event->score;
  r->num_top[r->events] = event->num_top;
  for (int i = 0; i < event->num_top; i++) r->top[r->events][i] = event->top[i];
  return ++r->events != r->most;
}

static void note_end(void *context, ot_finish finish) {
  result *const r = context;
  assert_false(r->finished);
  r->finished = true;
  r->finish = finish;
}

static ot_sequence_request scoring(const int32_t *tokens, int64_t count, result *to) {
  return (ot_sequence_request){.prompt = tokens,
                               .num_prompt = count,
                               .scores = true,
                               .token = take,
                               .finished = note_end,
                               .context = to};
}

static result *score(served *s, const int32_t *tokens, int64_t count) {
  result *const r = ot_arena_array(&arena, 1, sizeof *r);
  const ot_sequence_request request = scoring(tokens, count, r);
  must(ot_inference_add(s->engine, &request, NULL));
  must(ot_inference_run(s->engine));
  assert_true(r->finished && r->events == count);
  return r;
}

static void random_tokens(uint64_t stream, int64_t vocab, int32_t *tokens, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    tokens[i] = (int32_t)ot_rng_below(7, stream, (uint64_t)i, (uint64_t)vocab);
  }
}

static void expect_same_scores(const result *a, const result *b, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    assert_memory_equal(&a->scores[i].logprob, &b->scores[i].logprob, sizeof(double));
    assert_memory_equal(&a->scores[i].best, &b->scores[i].best, sizeof(double));
    assert_int_equal(a->scores[i].greedy, b->scores[i].greedy);
  }
}

// ---- scores ----

// ln p of `token` by the logits [V] of transformers.
static double log_probability(const double *logits, int64_t V, int32_t token) {
  double largest = logits[0], sum = 0;
  for (int64_t v = 0; v < V; v++) largest = logits[v] > largest ? logits[v] : largest;
  for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - largest);
  return logits[token] - largest - log(sum);
}

static void *read_tensor(const char *name, const char *tensor, ot_dtype dtype, int64_t *count) {
  ot_safetensors *file = NULL;
  const char *const path = ot_arena_format(&arena, "%s/reference.safetensors", directory_of(name));
  must(ot_safetensors_create(path, "", &file));
  const int index = ot_safetensors_find(file, tensor);
  assert_true(index >= 0);
  *count = ot_safetensors_tensor_at(file, index)->elements;
  void *const data = ot_arena_array(&arena, *count, 8);
  must(ot_safetensors_read(file, (ot_safetensors_range){index, 0, *count}, dtype, data));
  ot_safetensors_destroy(&file);
  return data;
}

// Each document of the case is a sequence of its own.
static double worst_error(const char *name, ot_dtype compute) {
  const ot_inference_shape shape = {.slots = 2, .chunk = 13, .positions = MOST};
  served s = serve(name, compute, shape);
  const int64_t V = s.files.model.vocab_size;
  int64_t count, values;
  const int32_t *const tokens = read_tensor(name, "tokens", OT_I32, &count);
  const int32_t *const positions = read_tensor(name, "positions", OT_I32, &count);
  const double *const logits = read_tensor(name, "logits.f64", OT_F64, &values);
  double worst = 0;
  for (int64_t first = 0, n; first < count; first += n) {
    n = 1;
    while (first + n < count && positions[first + n] > 0) n++;
    const result *const r = score(&s, tokens + first, n);
    for (int64_t t = 1; t < n; t++) {
      const double *const row = logits + (first + t - 1) * V;
      const double want = log_probability(row, V, tokens[first + t]);
      const double error = fabs(r->scores[t].logprob - want);
      worst = error > worst ? error : worst;
    }
  }
  end(&s);
  return worst;
}

static void scores_are_those_of_transformers(void **state) {
  (void)state;
  for (int i = 0; parity_cases[i]; i++) {
    const double in_f64 = worst_error(parity_cases[i], OT_F64);
    const double in_f32 = worst_error(parity_cases[i], OT_F32);
    if (!(in_f64 <= 1e-11)) fail_msg("%s: %g in float64", parity_cases[i], in_f64);
    if (!(in_f32 <= 2e-5)) fail_msg("%s: %g in float32", parity_cases[i], in_f32);
  }
}

static const char *const some[] = {"gpt2",    "qwen3",       "gemma2",
                                   "gpt-oss", "deepseek-v3", "qwen3-moe-residuals"};

// Sequences that share beginnings, of all lengths.
enum { LINES = 12 };

static int64_t line_of(int i, int64_t vocab, int32_t *tokens) {
  const int64_t length = 1 + (i * 23) % 90;
  random_tokens(1, vocab, tokens, length);
  if (i % 3 == 1) random_tokens(2 + (uint64_t)i, vocab, tokens + length / 2, length - length / 2);
  return length;
}

static void bits_do_not_depend_on_slots_chunks_or_the_cache(void **state) {
  (void)state;
  const ot_inference_shape shapes[] = {{.slots = 1, .chunk = 1, .positions = 96},
                                       {.slots = 3, .chunk = 7, .positions = 96},
                                       {.slots = 8, .chunk = 64, .positions = 96, .pages = 17},
                                       {.slots = 2, .chunk = 300, .positions = 112}};
  for (int m = 0; m < OT_COUNT(some); m++) {
    result *first[LINES];
    for (int k = 0; k < OT_COUNT(shapes); k++) {
      served s = serve(some[m], OT_F32, shapes[k]);
      result *const all = ot_arena_array(&arena, LINES, sizeof *all);
      int64_t lengths[LINES];
      for (int i = 0; i < LINES; i++) {
        int32_t tokens[MOST];
        lengths[i] = line_of(i, s.files.model.vocab_size, tokens);
        const ot_sequence_request request = scoring(tokens, lengths[i], &all[i]);
        must(ot_inference_add(s.engine, &request, NULL));
      }
      must(ot_inference_run(s.engine));
      for (int i = 0; i < LINES; i++) {
        assert_true(all[i].finished && all[i].events == lengths[i]);
        if (k == 0) first[i] = &all[i];
        expect_same_scores(first[i], &all[i], lengths[i]);
      }
      end(&s);
    }
  }
}

static void a_known_prefix_costs_nothing(void **state) {
  (void)state;
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 2, .chunk = 64, .positions = 96});
  int32_t tokens[MOST];
  random_tokens(3, s.files.model.vocab_size, tokens, 80);
  const result *const first = score(&s, tokens, 70);
  const int64_t rows = ot_inference_count(s.engine).rows;
  assert_int_equal(rows, 69);
  // 64 of 70 tokens are in full pages, and row 63 tells the score of token 64.
  const result *const again = score(&s, tokens, 70);
  assert_int_equal(ot_inference_count(s.engine).rows - rows, 6);
  expect_same_scores(first, again, 70);
  // Whole pages only: nothing runs.
  const int64_t before = ot_inference_count(s.engine).rows;
  expect_same_scores(first, score(&s, tokens, 64), 64);
  assert_int_equal(ot_inference_count(s.engine).rows, before);
  end(&s);
}

static void pages_are_taken_again_when_they_run_out(void **state) {
  (void)state;
  const ot_inference_shape shape = {.slots = 2, .chunk = 32, .positions = 64, .pages = 5};
  served s = serve("qwen3", OT_F32, shape);
  result *first[6];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 6; i++) {
      int32_t tokens[MOST];
      random_tokens(20 + (uint64_t)i, s.files.model.vocab_size, tokens, 50);
      result *const r = score(&s, tokens, 50);
      if (round == 0) first[i] = r;
      expect_same_scores(first[i], r, 50);
    }
  }
  assert_int_equal(ot_inference_count(s.engine).unused_pages, 5);
  end(&s);
}

// ---- texts ----

static ot_sequence_request generating(const int32_t *prompt, int64_t count, double temperature,
                                      result *to) {
  return (ot_sequence_request){.prompt = prompt,
                               .num_prompt = count,
                               .max_tokens = 20,
                               .draw = {.temperature = temperature, .top_p = 1, .seed = 5},
                               .token = take,
                               .finished = note_end,
                               .context = to};
}

static void greedy_tokens_are_the_most_probable_ones_of_a_score(void **state) {
  (void)state;
  for (int m = 0; m < OT_COUNT(some); m++) {
    served s =
        serve(some[m], OT_F32, (ot_inference_shape){.slots = 2, .chunk = 8, .positions = 48});
    int32_t tokens[MOST];
    random_tokens(4, s.files.model.vocab_size, tokens, 11);
    result made = {0};
    const ot_sequence_request request = generating(tokens, 11, 0, &made);
    must(ot_inference_add(s.engine, &request, NULL));
    must(ot_inference_run(s.engine));
    assert_int_equal(made.events, 20);
    assert_int_equal(made.finish, OT_FINISH_LENGTH);
    memcpy(tokens + 11, made.tokens, 20 * sizeof *tokens);
    end(&s);
    s = serve(some[m], OT_F32, (ot_inference_shape){.slots = 1, .chunk = 40, .positions = 48});
    const result *const scored = score(&s, tokens, 31);
    for (int64_t i = 0; i < 20; i++) {
      assert_int_equal(scored->scores[11 + i].greedy, made.tokens[i]);
      assert_memory_equal(&scored->scores[11 + i].logprob, &made.scores[i].logprob, 8);
      assert_memory_equal(&scored->scores[11 + i].best, &made.scores[i].logprob, 8);
    }
    end(&s);
  }
}

static void texts_do_not_depend_on_other_texts(void **state) {
  (void)state;
  result alone[LINES] = {0};
  for (int slots = 1; slots <= 4; slots += 3) {
    const ot_inference_shape shape = {.slots = slots, .chunk = 9, .positions = 128};
    served s = serve("llama", OT_F32, shape);
    result all[LINES] = {0};
    for (int i = LINES - 1; i >= 0; i--) {
      int32_t tokens[MOST];
      const int64_t count = line_of(i, s.files.model.vocab_size, tokens);
      const ot_sequence_request request = generating(tokens, count, 1, &all[i]);
      must(ot_inference_add(s.engine, &request, NULL));
    }
    must(ot_inference_run(s.engine));
    if (slots == 1) memcpy(alone, all, sizeof all);
    for (int i = 0; i < LINES; i++) {
      assert_memory_equal(alone[i].tokens, all[i].tokens, 20 * sizeof(int32_t));
      for (int t = 0; t < 20; t++) {
        const ot_token_score *const a = &alone[i].scores[t], *const b = &all[i].scores[t];
        assert_true(a->logprob == b->logprob && a->best == b->best && a->greedy == b->greedy);
      }
    }
    end(&s);
  }
}

static void a_text_ends_at_its_end_token_or_when_told(void **state) {
  (void)state;
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 2, .chunk = 8, .positions = 48});
  int32_t tokens[MOST];
  random_tokens(4, s.files.model.vocab_size, tokens, 11);
  result whole = {0}, ended = {0}, told = {.most = 3}, cancelled = {0};
  ot_sequence_request request = generating(tokens, 11, 0, &whole);
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_run(s.engine));
  request.context = &ended;
  request.num_ends = 1;
  request.ends[0] = whole.tokens[4];
  int64_t at = 0;
  while (whole.tokens[at] != request.ends[0]) at++;
  must(ot_inference_add(s.engine, &request, NULL));
  request.context = &told;
  request.num_ends = 0;
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_run(s.engine));
  assert_true(ended.events == at + 1 && ended.finish == OT_FINISH_STOP);
  assert_true(told.events == 3 && told.finish == OT_FINISH_STOP);
  ot_sequence *running = NULL, *waiting = NULL;
  request.context = &cancelled;
  must(ot_inference_add(s.engine, &request, &running));
  must(ot_inference_step(s.engine));
  result never = {0}, after = {0};
  request.context = &after;
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_add(s.engine, &request, NULL));
  request.context = &never;
  must(ot_inference_add(s.engine, &request, &waiting));
  ot_inference_cancel(s.engine, waiting);
  ot_inference_cancel(s.engine, running);
  assert_true(never.finish == OT_FINISH_CANCELLED && cancelled.finish == OT_FINISH_CANCELLED);
  assert_int_equal(ot_inference_count(s.engine).waiting, 2);
  end(&s);
}

static void the_most_probable_tokens_come_with_their_log_probabilities(void **state) {
  (void)state;
  served s =
      serve("gemma3", OT_F32, (ot_inference_shape){.slots = 2, .chunk = 16, .positions = 48});
  int32_t tokens[MOST];
  random_tokens(9, s.files.model.vocab_size, tokens, 30);
  const result *const plain = score(&s, tokens, 30);
  result r = {0};
  ot_sequence_request request = scoring(tokens, 30, &r);
  request.top = 5;
  request.max_tokens = 3;
  request.draw.top_p = 1;
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_run(s.engine));
  assert_int_equal(r.events, 33);
  expect_same_scores(plain, &r, 30);
  for (int64_t i = 1; i < 33; i++) {
    assert_int_equal(r.num_top[i], 5);
    assert_int_equal(r.top[i][0].id, r.scores[i].greedy);
    assert_true(r.top[i][0].value == r.scores[i].best);
    for (int k = 1; k < 5; k++) assert_true(r.top[i][k].value <= r.top[i][k - 1].value);
  }
  end(&s);
}

// ---- new weights ----

enum { KNOWN = 40, MADE = 20, MORE = 8 };  // of the prompt, before and after the new weights

// Two texts with one prompt: both run when the weights change, and one more begins after that.
typedef struct changed {
  result *first, *second, *later;
} changed;

static changed change_weights(bool recompute, int32_t *prompt) {
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 3, .chunk = 24, .positions = 96});
  changed c = {ot_arena_array(&arena, 1, sizeof(result)), ot_arena_array(&arena, 1, sizeof(result)),
               ot_arena_array(&arena, 1, sizeof(result))};
  result *const all[] = {c.first, c.second, c.later};
  random_tokens(31, s.files.model.vocab_size, prompt, KNOWN);
  must(ot_runtime_initialize(s.runtime, 1));
  for (int i = 0; i < 3; i++) {
    ot_sequence_request request = generating(prompt, KNOWN, 1, all[i]);
    request.max_tokens = i < 2 ? MADE + MORE : MORE;
    request.draw.choice = (uint64_t)i;
    if (i == 2) {
      while (c.first->events < MADE) must(ot_inference_step(s.engine));
      must(ot_runtime_initialize(s.runtime, 2));
      ot_inference_renew(s.engine, recompute);
    }
    must(ot_inference_add(s.engine, &request, NULL));
  }
  must(ot_inference_run(s.engine));
  end(&s);
  return c;
}

// The score of token `at` of prompt and text, by an engine that knows the new weights only.
static double new_score(const int32_t *prompt, const result *text, int64_t at) {
  int32_t tokens[KNOWN + MADE + MORE];
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 1, .chunk = 64, .positions = 96});
  must(ot_runtime_initialize(s.runtime, 2));
  memcpy(tokens, prompt, KNOWN * sizeof *tokens);
  memcpy(tokens + KNOWN, text->tokens, (size_t)(at - KNOWN + 1) * sizeof *tokens);
  const double logprob = score(&s, tokens, at + 1)->scores[at].logprob;
  end(&s);
  return logprob;
}

static void new_weights_compute_the_cache_again_or_keep_it(void **state) {
  (void)state;
  int32_t prompt[KNOWN];
  for (int recompute = 0; recompute < 2; recompute++) {
    const changed c = change_weights(recompute == 1, prompt);
    assert_true(c.first->events == MADE + MORE && c.later->events == MORE);
    // What began after the change has nothing of the old weights.
    assert_true(new_score(prompt, c.later, KNOWN + 3) == c.later->scores[3].logprob);
    const double fresh = new_score(prompt, c.second, KNOWN + MADE + 4);
    assert_true((fresh == c.second->scores[MADE + 4].logprob) == (recompute == 1));
    assert_true(new_score(prompt, c.first, KNOWN + 3) != c.first->scores[3].logprob);
  }
}

static void one_sequence_does_not_pay_for_empty_slots(void **state) {
  (void)state;
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 8, .chunk = 64, .positions = 48});
  int32_t tokens[MOST];
  random_tokens(4, s.files.model.vocab_size, tokens, 6);
  result scored = {0}, one = {0}, three[3] = {0};
  ot_sequence_request request = scoring(tokens, 6, &scored);
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_run(s.engine));
  assert_int_equal(ot_inference_count(s.engine).computed, 8);  // an eighth of the chunk
  // Six tokens in all slots, then one in an eighth of them.
  request = generating(tokens, 6, 0, &one);
  must(ot_inference_add(s.engine, &request, NULL));
  must(ot_inference_run(s.engine));
  assert_int_equal(ot_inference_count(s.engine).computed, 8 + 8 + 19);
  const int64_t before = ot_inference_count(s.engine).computed;
  for (int i = 0; i < 3; i++) {
    request.context = &three[i];
    must(ot_inference_add(s.engine, &request, NULL));
  }
  must(ot_inference_run(s.engine));
  // 18 tokens of prompts, then three in a half of the slots.
  assert_int_equal(ot_inference_count(s.engine).computed - before, 32 + 19 * 4);
  end(&s);
}

static void a_known_prefix_costs_nothing_with_lists_either(void **state) {
  (void)state;
  served s = serve("qwen3", OT_F32, (ot_inference_shape){.slots = 4, .chunk = 64, .positions = 96});
  int32_t tokens[MOST];
  random_tokens(11, s.files.model.vocab_size, tokens, 70);
  result *const r = ot_arena_array(&arena, 4, sizeof *r);
  const int tops[] = {5, 5, 3, 6}, rows[] = {69, 6, 6, 69};
  for (int i = 0; i < OT_COUNT(tops); i++) {
    const int64_t before = ot_inference_count(s.engine).rows;
    ot_sequence_request request = scoring(tokens, 70, &r[i]);
    request.top = tops[i];
    must(ot_inference_add(s.engine, &request, NULL));
    must(ot_inference_run(s.engine));
    // Fewer tokens are known from the longer lists; more are not.
    assert_int_equal(ot_inference_count(s.engine).rows - before, rows[i]);
    expect_same_scores(&r[0], &r[i], 70);
    for (int64_t t = 1; t < 70; t++) {
      assert_int_equal(r[i].num_top[t], tops[i]);
      const int same = tops[i] < 5 ? tops[i] : 5;
      for (int k = 0; k < same; k++) {
        assert_int_equal(r[i].top[t][k].id, r[0].top[t][k].id);
        assert_true(r[i].top[t][k].value == r[0].top[t][k].value);
      }
    }
  }
  end(&s);
}

static void what_cannot_run_is_refused(void **state) {
  (void)state;
  served s = serve("llama", OT_F32, (ot_inference_shape){.slots = 1, .chunk = 8, .positions = 32});
  int32_t tokens[MOST] = {0};
  ot_sequence_request request = scoring(tokens, 33, NULL);
  assert_int_equal(ot_inference_add(s.engine, &request, NULL), OT_USAGE);
  request.num_prompt = 32;
  request.max_tokens = 2;
  assert_int_equal(ot_inference_add(s.engine, &request, NULL), OT_USAGE);
  request.max_tokens = 0;
  request.num_prompt = 0;
  assert_int_equal(ot_inference_add(s.engine, &request, NULL), OT_USAGE);
  tokens[2] = (int32_t)s.files.model.vocab_size;
  request.num_prompt = 3;
  assert_int_equal(ot_inference_add(s.engine, &request, NULL), OT_USAGE);
  assert_true(ot_inference_is_idle(s.engine));
  end(&s);
}

static void experts_with_a_capacity_are_refused(void **state) {
  (void)state;
  served s = {0};
  const char *const settings[] = {"model.moe_routing=drop_by_position"};
  const ot_config_request sets = {.sets = settings, .num_sets = 1};
  must(ot_model_files_open(directory_of("mixtral"), OT_CHECKPOINT_HASH_NONE, &sets, &arena,
                           &s.files));
  ot_runtime_request request = {
      .rank = {.graph = {.compute = OT_F32, .storage = OT_F32, .threads = 1}}};
  const ot_inference_shape shape = {.slots = 1, .chunk = 8, .positions = 32};
  ot_inference_complete(&shape, &request.rank);
  must(ot_model_files_runtime(&s.files, &request, &s.runtime));
  assert_int_equal(ot_inference_create(s.runtime, 10, &s.engine), OT_USAGE);
  end(&s);
}

// ---- draws ----

static void draws_keep_to_the_tokens_that_may_be_drawn(void **state) {
  (void)state;
  // Probabilities 0.5, 0.25, 0.15, 0.07, 0.03 at ids 3, 0, 4, 2, 1.
  const double logits[] = {log(0.25), log(0.03), log(0.07), log(0.5), log(0.15)};
  const struct {
    ot_draw draw;
    unsigned allowed;
  } cases[] = {
      {{.temperature = 1, .top_p = 1}, 0x1f},
      {{.temperature = 1, .top_p = 1, .top_k = 2}, 1u << 3 | 1u << 0},
      {{.temperature = 1, .top_p = 0.7}, 1u << 3 | 1u << 0},
      {{.temperature = 1, .top_p = 0.8}, 1u << 3 | 1u << 0 | 1u << 4},
      {{.temperature = 1, .top_p = 0.6, .top_k = 3}, 1u << 3 | 1u << 0},
      {{.temperature = 1, .top_p = 1, .min_p = 0.25}, 1u << 3 | 1u << 0 | 1u << 4},
      {{.temperature = 0, .top_p = 1}, 1u << 3},
  };
  for (int c = 0; c < OT_COUNT(cases); c++) {
    ot_scored_token scratch[5];
    int counts[5] = {0};
    unsigned drawn = 0;
    for (int64_t i = 0; i < 4000; i++) {
      const int32_t token = ot_draw_token(&cases[c].draw, logits, 5, i, scratch);
      drawn |= 1u << token;
      counts[token]++;
    }
    assert_int_equal(drawn, cases[c].allowed);
    // With the probability 0.5 the mean is 2000, and five standard deviations are 158.
    if (c == 0) assert_true(abs(counts[3] - 2000) < 158);
    if (c == 1) assert_true(abs(counts[3] - 2667) < 150);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(scores_are_those_of_transformers, begin, finish),
      cmocka_unit_test_setup_teardown(bits_do_not_depend_on_slots_chunks_or_the_cache, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(a_known_prefix_costs_nothing, begin, finish),
      cmocka_unit_test_setup_teardown(pages_are_taken_again_when_they_run_out, begin, finish),
      cmocka_unit_test_setup_teardown(greedy_tokens_are_the_most_probable_ones_of_a_score, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(texts_do_not_depend_on_other_texts, begin, finish),
      cmocka_unit_test_setup_teardown(a_text_ends_at_its_end_token_or_when_told, begin, finish),
      cmocka_unit_test_setup_teardown(the_most_probable_tokens_come_with_their_log_probabilities,
                                      begin, finish),
      cmocka_unit_test_setup_teardown(new_weights_compute_the_cache_again_or_keep_it, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(one_sequence_does_not_pay_for_empty_slots, begin, finish),
      cmocka_unit_test_setup_teardown(a_known_prefix_costs_nothing_with_lists_either, begin,
                                      finish),
      cmocka_unit_test_setup_teardown(what_cannot_run_is_refused, begin, finish),
      cmocka_unit_test_setup_teardown(experts_with_a_capacity_are_refused, begin, finish),
      cmocka_unit_test_setup_teardown(draws_keep_to_the_tokens_that_may_be_drawn, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
