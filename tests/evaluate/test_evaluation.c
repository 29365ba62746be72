// SPDX-License-Identifier: Apache-2.0
// run: any machine. Tasks as tokens, and their results: engines that share the sequences out have
// together the results of one, bit by bit; windows score each token of a long text once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "evaluate/evaluation.h"
#include "support/arena_fixture.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { POSITIONS = 64 };

typedef struct evaluated {
  ot_model model;
  ot_tokenizer *tokenizer;
  ot_runtime *runtime;
  ot_inference *engine;
  ot_text_task tasks[3];
} evaluated;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static ot_text_task read_task(const evaluated *e, const char *name, const char *text) {
  char folder[SCRATCH_BYTES];
  ot_text_task task;
  scratch_create(folder);
  const char *const path = scratch_path(folder, name);
  scratch_write(path, text, (int64_t)strlen(text));
  const ot_text_task_source source = {
      .name = "", .path = path, .model = &e->model, .tokenizer = e->tokenizer};
  must(ot_text_task_read(&source, &arena, &task));
  scratch_destroy(folder);
  return task;
}

static evaluated create(void) {
  evaluated e = {.model = tiny_llama()};
  e.model.vocab_size = 257;
  e.model.max_positions = POSITIONS;
  must(ot_tokenizer_create("bytes", &e.tokenizer));
  const char *const longer =
      ot_arena_format(&arena, "{\"text\": \"%0200d\"}\n{\"text\": \"short\"}\n", 7);
  e.tasks[0] = read_task(&e, "choice.jsonl",
                         "{\"context\": \"ab \", \"choices\": [\"c\", \"dd\"], \"answer\": 1}\n"
                         "{\"context\": \"\", \"choices\": [\"x\", \"yy\"], \"answer\": 0}\n");
  e.tasks[1] = read_task(&e, "long.jsonl", longer);
  e.tasks[2] = read_task(&e, "made.jsonl", "{\"prompt\": \"ab\", \"answer\": \"-\"}\n");
  const ot_inference_shape shape = ot_evaluation_shape(e.tasks, 3);
  ot_runtime_request request = {
      .rank = {.graph = {.model = &e.model, .compute = OT_F32, .storage = OT_F32, .threads = 1}}};
  ot_inference_complete(&shape, &request.rank);
  must(ot_runtime_create(&request, &e.runtime));
  must(ot_runtime_initialize(e.runtime, 4));
  must(ot_inference_create(e.runtime, 257, &e.engine));
  return e;
}

static void destroy(evaluated *e) {
  ot_inference_destroy(&e->engine);
  ot_runtime_destroy(&e->runtime);
  ot_tokenizer_destroy(&e->tokenizer);
}

// The results of a share, or of all of them one after the other.
static double *results_of(const evaluated *e, int64_t share, int64_t shares) {
  ot_evaluation *evaluation = NULL;
  const ot_evaluation_request request = {.tasks = e->tasks,
                                         .num_tasks = 3,
                                         .tokenizer = e->tokenizer,
                                         .engine = e->engine,
                                         .share = share,
                                         .shares = shares};
  must(ot_evaluation_create(&request, &evaluation));
  for (bool done = false; !done;) must(ot_evaluation_step(evaluation, &done));
  const int64_t count = ot_evaluation_count(evaluation);
  double *const copy = ot_arena_array(&arena, count, sizeof *copy);
  memcpy(copy, ot_evaluation_results(evaluation), (size_t)count * sizeof *copy);
  ot_evaluation_destroy(&evaluation);
  return copy;
}

static void shares_have_the_results_of_one_engine(void **state) {
  (void)state;
  evaluated e = create();
  const int64_t count =
      e.tasks[0].num_sequences + e.tasks[1].num_sequences + e.tasks[2].num_sequences;
  const double *const whole = results_of(&e, 0, 1);
  for (int shares = 2; shares <= 3; shares++) {
    double *const sum = ot_arena_array(&arena, count, sizeof *sum);
    for (int share = 0; share < shares; share++) {
      const double *const part = results_of(&e, share, shares);
      for (int64_t i = 0; i < count; i++) {
        assert_true(part[i] == 0 || i % shares == share);
        sum[i] += part[i];
      }
    }
    assert_memory_equal(sum, whole, (size_t)count * sizeof *sum);
  }
  assert_true(whole[0] < 0 && whole[count - 2] < 0);
  destroy(&e);
}

static void windows_score_each_token_once(void **state) {
  (void)state;
  evaluated e = create();
  const ot_text_task *const task = &e.tasks[1];
  // 200 tokens after the separator, 63 of them in a window, and the five of the second text.
  assert_int_equal(task->num_sequences, 5);
  assert_int_equal(task->tokens, 205);
  assert_int_equal(task->bytes, 205);
  int64_t scored = 0;
  for (int i = 0; i < 5; i++) {
    scored += task->sequences[i].count - task->sequences[i].first;
    assert_true(task->sequences[i].count <= POSITIONS && task->sequences[i].first >= 1);
  }
  assert_int_equal(scored, 205);
  assert_int_equal(task->sequences[0].ids[0], 256);
  // The last window of a text is as long as the others, for the sake of its context.
  assert_int_equal(task->sequences[3].count, POSITIONS);
  assert_int_equal(task->sequences[3].first, POSITIONS - 11);
  destroy(&e);
}

static void choices_begin_after_the_tokens_of_the_context(void **state) {
  (void)state;
  evaluated e = create();
  const ot_text_task *const task = &e.tasks[0];
  // The space at the end of a context belongs to the choice; an empty one is the separator.
  assert_int_equal(task->sequences[0].count, 4);
  assert_int_equal(task->sequences[0].first, 2);
  assert_int_equal(task->sequences[1].characters, 2);
  assert_int_equal(task->sequences[2].ids[0], 256);
  assert_int_equal(task->sequences[2].first, 1);
  // The first of equal results, and by characters the longer choice.
  const double results[] = {-3, -4, -2, -2};
  ot_text_task_figure figures[OT_TEXT_TASK_FIGURES];
  assert_int_equal(ot_text_task_figures(task, results, figures), 3);
  assert_string_equal(figures[0].name, "acc");
  assert_true(figures[0].value == 0.5 && figures[1].value == 0.5 && figures[2].value == 3);
  destroy(&e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(shares_have_the_results_of_one_engine, begin, finish),
      cmocka_unit_test_setup_teardown(windows_score_each_token_once, begin, finish),
      cmocka_unit_test_setup_teardown(choices_begin_after_the_tokens_of_the_context, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
