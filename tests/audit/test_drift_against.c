// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2 as threads. Log-probabilities of a run's model by other software: sound ones are
// clean in any type and on any mesh; faults are named; files that do not fit are refused.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "audit/probe.h"
#include "audit/variant.h"
#include "base/rng.h"
#include "judge/log_probability.h"
#include "support/audit_case.h"
#include "support/directory_fixture.h"

enum { TEXTS = 6, LONGEST = 16, PROMPT = 2 };

// Two rows of a run hold all but one of these texts.
static const int64_t lengths[TEXTS] = {16, 5, 11, 9, 7, 12};

// How the file of the other software is made, and what the audit says.
typedef struct server {
  const char *lines;   // null: scores of the texts
  double temperature;  // 0: 1
  int shift;           // a token has the value of the token at this distance
  bool bf16;           // of weights and activations
  void (*amend_files)(const char *path);
  const char *path;
  // the answer
  ot_verdict verdict;
  int num_findings;
  char what[64], where[512], text[8192], json[8192];
} server;

// ---- the file ----

static int32_t token_at(int64_t text, int64_t t) {
  return (int32_t)ot_rng_below(11, (uint64_t)text, (uint64_t)t, 300);
}

static double value_of(const server *s, const double *logits, int64_t vocab, int32_t target) {
  double *const scaled = malloc((size_t)vocab * sizeof *scaled);
  for (int64_t v = 0; v < vocab; v++)
    scaled[v] = logits[v] / (s->temperature > 0 ? s->temperature : 1);
  const double value = ot_log_probability(scaled, vocab, target);
  free(scaled);
  return value;
}

static void write_text(const server *s, FILE *file, int64_t text, const double *logits) {
  const int64_t vocab = 300;
  fprintf(file, "{\"context_tokens\":[%d,%d],\"tokens\":[", token_at(text, 0), token_at(text, 1));
  for (int64_t t = PROMPT; t < lengths[text]; t++)
    fprintf(file, "%s%d", t > PROMPT ? "," : "", token_at(text, t));
  fprintf(file, "],\"logprobs\":[");
  for (int64_t t = PROMPT; t < lengths[text]; t++) {
    const int64_t of = t + s->shift;
    if (t > PROMPT) fputc(',', file);
    if (of < lengths[text]) {
      fprintf(file, "%.9g", value_of(s, logits + (of - 1) * vocab, vocab, token_at(text, of)));
    } else {
      fputs("null", file);
    }
  }
  fputs("]}\n", file);
}

// Weights are gathered from all ranks.
static ot_status compute_logits(audit_rank *rank, const server *s, double *logits) {
  const ot_dtype wide = rank->run->precision.compute == OT_F64 ? OT_F64 : OT_F32;
  const ot_probe_request request = {.model = &rank->run->model,
                                    .mode = OT_MODE_LOGITS,
                                    .sequences = TEXTS,
                                    .tokens = LONGEST,
                                    .compute = wide,
                                    .storage = s->bf16 ? OT_BF16 : wide,
                                    .threads = 1};
  ot_runtime *probe = NULL;
  ot_micro_batch rows;
  OT_TRY(ot_micro_batch_create(TEXTS, LONGEST, &rows));
  for (int64_t i = 0; i < TEXTS * LONGEST; i++) {
    rows.tokens[i] = token_at(i / LONGEST, i % LONGEST);
    rows.positions[i] = (int32_t)(i % LONGEST);
  }
  ot_status status = OT_OK;
  if (rank->rank == 0) status = ot_probe_create(&request, &probe);
  if (status == OT_OK) status = ot_variant_copy_weights(ot_trainer_runtime(rank->trainer), probe);
  if (status == OT_OK && probe) status = ot_probe_ask(probe, &rows, logits);
  ot_runtime_destroy(&probe);
  ot_micro_batch_release(&rows);
  return status;
}

static ot_status write_scores(audit_rank *rank, const server *s) {
  const int64_t vocab = rank->run->model.vocab_size;
  double *const logits = malloc((size_t)(TEXTS * LONGEST * vocab) * sizeof *logits);
  const ot_status status = compute_logits(rank, s, logits);
  FILE *const file = status == OT_OK && rank->rank == 0 ? fopen(s->path, "w") : NULL;
  for (int64_t i = 0; file && i < TEXTS; i++) write_text(s, file, i, logits + i * LONGEST * vocab);
  if (file) fclose(file);
  free(logits);
  return status;
}

// ---- the audit ----

static void keep(server *s, const ot_audit_report *report) {
  ot_json_writer json = ot_json_begin(report->arena, 0);
  ot_audit_report_write(report, &json, NULL);
  s->verdict = report->verdict;
  s->num_findings = report->num_findings;
  snprintf(s->text, sizeof s->text, "%s", ot_audit_report_print(report));
  snprintf(s->json, sizeof s->json, "%s", json.text);
  if (report->num_findings == 0) return;
  snprintf(s->what, sizeof s->what, "%s", report->findings[0].what);
  snprintf(s->where, sizeof s->where, "%s", report->findings[0].where);
}

static ot_status run_drift(audit_rank *rank) {
  server *const s = rank->context;
  ot_heap own = {0};
  ot_arena texts = ot_heap_arena_create(&own);
  ot_audit_report report;
  const ot_audit_request request = {
      .trainer = rank->trainer, .against = s->path, .amend_files = s->amend_files};
  if (!s->lines) OT_TRY(write_scores(rank, s));
  const ot_status status = ot_audit_drift(&request, &texts, &report);
  if (status == OT_OK && rank->rank == 0) keep(s, &report);
  ot_heap_release(&own);
  return status;
}

static ot_status run(const audit_request *request, server *s) {
  s->path = scratch_path(directory, "server.jsonl");
  if (s->lines) scratch_write(s->path, s->lines, (int64_t)strlen(s->lines));
  return audit_run(request, run_drift, s);
}

static server answer(const audit_request *request, server how) {
  if (run(request, &how) != OT_OK) fail_msg("%s", ot_fail_message());
  return how;
}

// Weights that are large enough for tokens to differ.
static audit_request dense(void) {
  audit_request request = audit_dense_request(2);
  request.model.initializer_range = 0.3;
  return request;
}

static void expect_clean(const audit_request *request, server how) {
  const server s = answer(request, how);
  if (s.verdict != OT_VERDICT_CLEAN) fail_msg("%s", s.text);
}

static void expect_finding(const audit_request *request, server how, const char *what,
                           const char *words) {
  const server s = answer(request, how);
  const bool right = s.num_findings == 1 && strcmp(s.what, what) == 0 && strstr(s.text, words);
  if (!right || strcmp(s.where, scratch_path(directory, "server.jsonl")) != 0)
    fail_msg("%s", s.text);
}

// ---- verdicts ----

static void sound_values_are_clean_in_any_type_and_on_any_mesh(void **state) {
  (void)state;
  audit_request request = dense();
  expect_clean(&request, (server){0});
  expect_clean(&request, (server){.bf16 = true});
  request.tp = 2;
  expect_clean(&request, (server){0});
  request = dense();
  request.pp = 2;
  request.bf16 = true;
  expect_clean(&request, (server){0});
  expect_clean(&request, (server){.bf16 = true});
  request = dense();
  request.fp64 = true;
  expect_clean(&request, (server){0});
}

static void faults_of_the_other_software_are_named(void **state) {
  (void)state;
  audit_request request = dense();
  expect_finding(&request, (server){.temperature = 0.7}, "temperature", "factor 0.7:");
  expect_finding(&request, (server){.shift = 1}, "shifted", "factor +1:");
  request.pp = 2;
  request.bf16 = true;
  expect_finding(&request, (server){.temperature = 0.7}, "temperature", "factor 0.7");
  expect_finding(&request, (server){.shift = 1}, "shifted", "factor +1:");
}

// Values of all 48 scored tokens, and the figures of `judge logprobs`.
static void the_report_has_the_figures_of_the_judge(void **state) {
  (void)state;
  const audit_request request = dense();
  const server s = answer(&request, (server){.temperature = 0.7});
  static const char *const parts[] = {"\"figures\":{\"against\":\"",
                                      "\"tokens\":48,",
                                      "\"sequences\":6,",
                                      "\"rms_nats\":1.5",
                                      "\"k3_nats\":",
                                      "\"sensitivity\":{\"shifted\":"};
  for (int i = 0; i < OT_COUNT(parts); i++)
    if (!strstr(s.json, parts[i])) fail_msg("no %s in %s", parts[i], s.json);
  assert_non_null(strstr(s.text, "the training forward in fp32, and both against float64\n"));
  assert_non_null(strstr(s.text, "smallest fault that would have shown: "));
  assert_non_null(strstr(s.text, "vLLM: logprobs_mode"));
}

// The other software computes in float32, this run in bf16.
static void the_training_forward_has_the_types_of_the_run(void **state) {
  (void)state;
  audit_request request = dense();
  request.bf16 = true;
  const server s = answer(&request, (server){0});
  assert_non_null(strstr(s.text, "the training forward in bf16, and both against float64\n"));
  const char *const first = strstr(s.text, "  first "), *const second = strstr(s.text, "  second ");
  assert_true(first && second && strstr(first, "own error in fp32") < second);
  assert_non_null(strstr(second, "own error in bf16"));
}

// A window that files of this family cannot describe; tokens that experts drop.
static void models_that_the_judge_cannot_compute_are_not_compared(void **state) {
  (void)state;
  audit_request request = dense();
  for (int i = 0; i < 2; i++) request.model.window[i] = 5;
  server s = answer(&request, (server){0});
  assert_string_equal(s.what, "export");
  assert_non_null(strstr(s.text, "was not compared: exported files do not describe the model"));
  request = audit_moe_request(2, 4);
  request.model.moe.routing = OT_MOE_DROP_BY_POSITION;
  request.model.moe.capacity_factor = 4;
  s = answer(&request, (server){0});
  if (s.verdict != OT_VERDICT_INCONCLUSIVE) fail_msg("%s", s.text);
  assert_non_null(strstr(s.text, "was not judged: judge: moe_routing other than dropless"));
}

// ---- what is refused ----

static void bad_files_are_refused_with_their_place(void **state) {
  (void)state;
  static const struct {
    const char *lines, *part, *hint;
    ot_status status;
  } cases[] = {
      {"{\"tokens\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],\"logprobs\":[null,-1,-1,-1,-1,-1,"
       "-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1]}\n",
       "server.jsonl:1: the text has 17 tokens; allowed: up to data.sequence_length=16",
       "--set data.sequence_length=17", OT_USAGE},
      {"{\"context_tokens\":[1],\"tokens\":[5,300],\"logprobs\":[-1,-2]}\n",
       "server.jsonl:1: token 2 is 300; allowed: ids from 0 to 299", "tokenizer of the run",
       OT_USAGE},
      {"{\"context_tokens\":[1],\"tokens\":[5],\"logprobs\":[-1]}\n\n"
       "{\"context_tokens\":[1],\"tokens\":[\"the\"],\"logprobs\":[-1]}\n",
       "server.jsonl:3: token 1 is 'the'; allowed: ids", "return_token_ids", OT_USAGE},
      {"{\"tokens\":[5,6],\"logprobs\":[-1.5,-2]}\n",
       "server.jsonl:1: the first token, 5, has log-probability -1.5", "context_tokens", OT_USAGE},
      {"{\"tokens\":[5],\"logprobs\":[2.5]}\n", "server.jsonl:1: token 0 has log-probability 2.5",
       "natural logarithms", OT_USAGE},
      {"", "there are no log-probabilities", "", OT_USAGE},
  };
  const audit_request request = dense();
  for (int i = 0; i < OT_COUNT(cases); i++) {
    server s = {.lines = cases[i].lines};
    assert_int_equal(run(&request, &s), cases[i].status);
    assert_message_has(cases[i].part);
    if (!strstr(ot_fail_hint_text(), cases[i].hint)) fail_msg("%d: %s", i, ot_fail_hint_text());
  }
}

static ot_status run_without_file(audit_rank *rank) {
  ot_audit_report report;
  const ot_audit_request request = {.trainer = rank->trainer, .against = "absent.jsonl"};
  return ot_audit_drift(&request, &arena, &report);
}

static void a_missing_file_is_named_on_any_mesh(void **state) {
  (void)state;
  audit_request request = dense();
  for (request.pp = 1; request.pp <= 2; request.pp++) {
    assert_int_equal(audit_run(&request, run_without_file, NULL), OT_ENVIRONMENT);
    assert_message_has("absent.jsonl");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(sound_values_are_clean_in_any_type_and_on_any_mesh,
                                      open_directory, close_directory),
      cmocka_unit_test_setup_teardown(faults_of_the_other_software_are_named, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(the_report_has_the_figures_of_the_judge, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(the_training_forward_has_the_types_of_the_run, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(models_that_the_judge_cannot_compute_are_not_compared,
                                      open_directory, close_directory),
      cmocka_unit_test_setup_teardown(bad_files_are_refused_with_their_place, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(a_missing_file_is_named_on_any_mesh, open_directory,
                                      close_directory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
