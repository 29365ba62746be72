// SPDX-License-Identifier: Apache-2.0
// run: any machine. Packed documents have the scores that they have alone; the gradient of weighted
// tokens is that of sum weight * -log p by finite differences, in float64.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "rl/learner.h"
#include "support/arena_fixture.h"
#include "support/tiny_model.h"

enum { DOCUMENTS = 7, MOST = 16 };

static int32_t tokens[DOCUMENTS][MOST];
static double values[DOCUMENTS][MOST], weights[DOCUMENTS][MOST];

static ot_run run_of(void) {
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.precision = (ot_run_precision){OT_F64, OT_F64, OT_F64, OT_F64, OT_F64, OT_F64, OT_SUM_WIDE};
  run.init = "random";
  run.data.sequence_length = MOST;
  run.batch.micro_batch_size = 2;
  run.steps = 10;
  run.seed = 3;
  run.threads = 1;
  run.rl.prompts = "prompts.jsonl";
  return run;
}

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

// Lengths of 4 to 10: several in a row.
static void make_documents(const ot_run *run, ot_rl_document documents[DOCUMENTS]) {
  for (int d = 0; d < DOCUMENTS; d++) {
    const int64_t prompt = 1 + d % 3, rest = 3 + d;
    for (int64_t i = 0; i < prompt + rest; i++) {
      tokens[d][i] =
          (int32_t)ot_rng_below(1, (uint64_t)d, (uint64_t)i, (uint64_t)run->model.vocab_size);
      weights[d][i] = (float)ot_rng_normal(2, (uint64_t)d, (uint64_t)i) / 16;
    }
    documents[d] = (ot_rl_document){.prompt = tokens[d],
                                    .num_prompt = prompt,
                                    .rest = tokens[d] + prompt,
                                    .num_rest = rest - 1,
                                    .last = tokens[d] + prompt + rest - 1,
                                    .num_last = 1,
                                    .first = prompt,
                                    .values = values[d]};
  }
}

static void packed_documents_have_their_own_scores(void **state) {
  (void)state;
  const ot_run run = run_of();
  ot_rl_document documents[DOCUMENTS];
  ot_rl_learner *learner = NULL;
  make_documents(&run, documents);
  must(ot_rl_learner_create(&run, NULL, DOCUMENTS, &learner));
  must(ot_rl_learner_score(learner, documents, DOCUMENTS));
  for (int d = 0; d < DOCUMENTS; d++) {
    double alone[MOST];
    ot_rl_document one = documents[d];
    one.values = alone;
    must(ot_rl_learner_score(learner, &one, 1));
    for (int64_t i = 0; i < ot_rl_document_tokens(&one) - one.first; i++) {
      assert_float_equal(alone[i], values[d][i], 1e-12);
      assert_true(alone[i] < 0);
    }
  }
  ot_rl_learner_destroy(&learner);
}

static double weighted_loss(ot_rl_learner *learner, ot_rl_document *documents) {
  double sum = 0;
  must(ot_rl_learner_score(learner, documents, DOCUMENTS));
  for (int d = 0; d < DOCUMENTS; d++) {
    const int64_t trained = ot_rl_document_tokens(&documents[d]) - documents[d].first;
    for (int64_t i = 0; i < trained; i++) sum -= weights[d][i] * values[d][i];
  }
  return sum;
}

static double element(ot_rl_learner *learner, int parameter, ot_parameter_copy copy, int64_t row,
                      const double *set) {
  ot_runtime *const runtime = ot_rl_learner_runtime(learner);
  const int64_t cols = ot_runtime_whole_graph(runtime)->parameters[parameter].cols;
  double *const values_of_row = ot_arena_array(&arena, cols, sizeof(double));
  const ot_parameter_rows rows = {parameter, copy, row, 1};
  must(ot_runtime_read(runtime, &rows, values_of_row));
  const double kept = values_of_row[cols / 2];
  if (!set) return kept;
  values_of_row[cols / 2] = *set;
  ot_runtime_write(runtime, &rows, values_of_row);
  return kept;
}

static double slope(ot_rl_learner *learner, ot_rl_document *documents, int parameter, int64_t row) {
  const double h = 1e-6, at = element(learner, parameter, OT_COPY_WEIGHT, row, NULL);
  const double places[] = {at + h, at - h};
  double losses[2];
  for (int i = 0; i < 2; i++) {
    (void)element(learner, parameter, OT_COPY_WEIGHT, row, &places[i]);
    losses[i] = weighted_loss(learner, documents);
  }
  (void)element(learner, parameter, OT_COPY_WEIGHT, row, &at);
  return (losses[0] - losses[1]) / (2 * h);
}

static void gradient_is_that_of_the_weighted_loss(void **state) {
  (void)state;
  ot_run run = run_of();
  run.optimizer.lr = 0;
  run.optimizer.clip = 0;
  ot_rl_document documents[DOCUMENTS], weighted[DOCUMENTS];
  ot_rl_learner *learner = NULL;
  ot_rl_step step;
  make_documents(&run, documents);
  must(ot_rl_learner_create(&run, NULL, DOCUMENTS, &learner));
  const double loss = weighted_loss(learner, documents);
  for (int d = 0; d < DOCUMENTS; d++) {
    weighted[d] = documents[d];
    weighted[d].values = weights[d];
  }
  must(ot_rl_learner_step(learner, weighted, DOCUMENTS, 0, &step));
  assert_float_equal(step.loss, loss, 1e-6 * fabs(loss));  // weights are float32
  const ot_graph *const whole = ot_runtime_whole_graph(ot_rl_learner_runtime(learner));
  for (int p = 0; p < whole->num_parameters; p++) {
    const int64_t row = whole->parameters[p].rows / 2;
    const double found = element(learner, p, OT_COPY_GRADIENT, row, NULL);
    assert_float_equal(found, slope(learner, documents, p, row), 1e-7);
  }
  ot_rl_learner_destroy(&learner);
}

static void documents_that_are_too_long_are_refused(void **state) {
  (void)state;
  const ot_run run = run_of();
  ot_rl_learner *learner = NULL;
  must(ot_rl_learner_create(&run, NULL, 1, &learner));
  static const int32_t many[MOST + 2] = {0};
  double scores[MOST + 1];
  ot_rl_document one = {.prompt = many,
                        .num_prompt = 1,
                        .rest = many,
                        .num_rest = MOST,
                        .first = 1,
                        .values = scores};
  must(ot_rl_learner_score(learner, &one, 1));
  one.num_rest++;
  assert_int_equal(ot_rl_learner_score(learner, &one, 1), OT_USAGE);
  ot_rl_learner_destroy(&learner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(packed_documents_have_their_own_scores, begin, finish),
      cmocka_unit_test_setup_teardown(gradient_is_that_of_the_weighted_loss, begin, finish),
      cmocka_unit_test_setup_teardown(documents_that_are_too_long_are_refused, begin, finish),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
