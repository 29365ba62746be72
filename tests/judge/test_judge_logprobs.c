// SPDX-License-Identifier: Apache-2.0
// run: any machine. Verdicts on log-probabilities that tests/fixtures/judge/make_logprobs.py made
// with transformers, in the forms of several servers, sound and with faults; and what is refused.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "judge/judge_logprobs.h"
#include "support/directory_fixture.h"

static const char *fixture(const char *name) {
  return ot_arena_format(&arena, OT_SOURCE_DIR "/tests/fixtures/judge/logprobs/%s", name);
}

typedef struct question {
  const char *a, *b;
  bool alone;  // without the checkpoint
  ot_judge_type type;
} question;

// With the checkpoint.
static question both(const char *a, const char *b) {
  return (question){a, b, false, OT_JUDGE_AUTO};
}

static question alone(const char *a, const char *b, ot_judge_type type) {
  return (question){a, b, true, type};
}

static ot_judge_report judge(question q) {
  ot_judge_report report;
  const ot_judge_logprobs_request request = {.path = {fixture(q.a), fixture(q.b)},
                                             .checkpoint = q.alone ? NULL : fixture(""),
                                             .type = q.type,
                                             .most_tokens = 1 << 14,
                                             .threads = 1};
  if (ot_judge_logprobs(&request, &arena, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report;
}

static double figure(const ot_judge_report *report, const char *name) {
  for (int i = 0; i < report->num_figures; i++) {
    if (strcmp(report->figures[i].name, name) == 0) return report->figures[i].value;
  }
  fail_msg("no figure %s", name);
  return NAN;
}

static void expect_verdict(question q, ot_verdict verdict) {
  const ot_judge_report report = judge(q);
  if (report.verdict != verdict) fail_msg("%s", ot_judge_report_print(&report));
}

// Exactly one finding, about file a, complete if a factor is expected or the cause has none.
static void expect_finding(question q, const char *what, const char *factor, bool complete) {
  const ot_judge_report report = judge(q);
  const ot_judge_finding *const f = report.findings;
  if (report.num_findings != 1 || strcmp(f->what, what) != 0)
    fail_msg("%s", ot_judge_report_print(&report));
  if (factor && (!f->factor || strcmp(f->factor, factor) != 0))
    fail_msg("%s", ot_judge_report_print(&report));
  assert_non_null(strstr(f->tensors, q.a));
  if (complete && !(f->confirmed < 2)) fail_msg("%s", ot_judge_report_print(&report));
}

// ---- verdicts ----

static void sound_pairs_are_clean(void **state) {
  (void)state;
  expect_verdict(both("fp32.jsonl", "fp32.jsonl"), OT_VERDICT_CLEAN);
  expect_verdict(both("bf16.jsonl", "fp32.jsonl"), OT_VERDICT_CLEAN);
  expect_verdict(both("fp32.jsonl", "bf16.jsonl"), OT_VERDICT_CLEAN);
  expect_verdict(alone("bf16.jsonl", "fp32.jsonl", OT_JUDGE_BF16), OT_VERDICT_CLEAN);
  expect_verdict(alone("vllm_fp32.jsonl", "vllm_fp32.jsonl", OT_JUDGE_AUTO), OT_VERDICT_CLEAN);
}

static void rounding_of_an_unknown_type_is_inconclusive(void **state) {
  (void)state;
  expect_verdict(alone("bf16.jsonl", "fp32.jsonl", OT_JUDGE_AUTO), OT_VERDICT_INCONCLUSIVE);
  expect_verdict(alone("bf16.jsonl", "fp32.jsonl", OT_JUDGE_FP32), OT_VERDICT_FINDING);
}

static void faults_are_named_with_a_checkpoint(void **state) {
  (void)state;
  static const struct {
    const char *file, *what, *factor;
    bool complete;
  } cases[] = {{"temperature.jsonl", "temperature", "0.7", true},
               {"top_p.jsonl", "renormalised", "top-p 0.9", true},
               {"hot_top_p.jsonl", "temperature_renormalised", "temperature 1.3, top-p 0.9", true},
               {"shifted.jsonl", "shifted", "+1", true},
               {"no_bos.jsonl", "bos", NULL, true},
               {"padded.jsonl", "padding_attended", NULL, true},
               {"positions.jsonl", "positions", NULL, true},
               {"stale.jsonl", "other_weights", NULL, false}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const bool complete = cases[i].complete;
    expect_finding(both(cases[i].file, "fp32.jsonl"), cases[i].what, cases[i].factor, complete);
    expect_finding(both(cases[i].file, "bf16.jsonl"), cases[i].what, cases[i].factor, complete);
  }
}

static void faults_are_named_by_two_files_alone(void **state) {
  (void)state;
  expect_finding(alone("vllm_temperature.jsonl", "vllm_fp32.jsonl", OT_JUDGE_AUTO), "temperature",
                 "0.7", true);
  expect_finding(alone("vllm_top_p.jsonl", "vllm_fp32.jsonl", OT_JUDGE_AUTO), "renormalised", NULL,
                 true);
  expect_finding(alone("shifted.jsonl", "fp32.jsonl", OT_JUDGE_AUTO), "shifted", "+1", true);
  expect_finding(alone("top_p.jsonl", "fp32.jsonl", OT_JUDGE_AUTO), "logprobs", NULL, false);
}

// Renormalised over a share of 0.9, each ratio is that share: trl #6789.
static void figures_are_those_of_their_formulas(void **state) {
  (void)state;
  const ot_judge_report report = judge(both("top_p.jsonl", "fp32.jsonl"));
  const double ratio = figure(&report, "ratio_mean"), x = -figure(&report, "k1_nats");
  assert_true(ratio > 0.89 && ratio < 0.91 && fabs(log(ratio) - x) < 1e-3);
  assert_true(fabs(figure(&report, "k2_nats") - x * x / 2) < 1e-4);
  assert_true(fabs(figure(&report, "k3_nats") - (ratio - 1 - x)) < 1e-12);
  assert_true(figure(&report, "effective_sample_size") > 0.999);
  assert_true(figure(&report, "clipped_at_0.2") == 0);
  assert_true(figure(&report, "tokens") == 133 && figure(&report, "sequences") == 4);
}

// ---- planted faults and what is refused ----

static const char *write_lines(const char *name, const char *lines) {
  const char *const path = ot_arena_format(&arena, "%s/%s", directory, name);
  FILE *const file = fopen(path, "w");
  assert_non_null(file);
  fputs(lines, file);
  fclose(file);
  return path;
}

static ot_status judge_lines(const char *a, const char *b, ot_judge_report *report) {
  const ot_judge_logprobs_request request = {
      .path = {write_lines("a", a), write_lines("b", b)}, .most_tokens = 1 << 14, .threads = 1};
  return ot_judge_logprobs(&request, &arena, report);
}

static void expect_lines(const char *a, const char *b, const char *what) {
  ot_judge_report report;
  if (judge_lines(a, b, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  if (report.num_findings != 1 || strcmp(report.findings[0].what, what) != 0)
    fail_msg("%s", ot_judge_report_print(&report));
}

static void values_alone_show_faults_of_lists(void **state) {
  (void)state;
  static const char right[] =
      "{\"tokens\":[5,6,7,8,9],\"logprobs\":[-1.5,-2.25,-0.75,-3.5,-0.3]}\n";
  expect_lines("{\"tokens\":[5,6,7,8,9],\"logprobs\":[-1.5,0.0,-0.75,-3.5,-0.3]}\n", right,
               "filled_with_zeros");
  expect_lines("{\"tokens\":[5,6,7,8,9],\"logprobs\":[-1.5,-9999.0,-0.75,-3.5,-0.3]}\n", right,
               "impossible_tokens");
  expect_lines(
      "{\"tokens\":[5,6,7,8,9],\"logprobs\":[-2.16404256,-3.24606384,-1.08202128,"
      "-5.04943264,-0.43280851]}\n",
      right, "logarithm");
  // Ids decide the order of lines; a prompt may be missing.
  ot_judge_report report;
  assert_int_equal(judge_lines("{\"id\":1,\"tokens\":[5],\"logprobs\":[-1]}\n"
                               "{\"id\":2,\"tokens\":[6,7],\"logprobs\":[-2,-3]}\n",
                               "{\"id\":2,\"tokens\":[7],\"logprobs\":[-3]}\n"
                               "{\"id\":1,\"tokens\":[5],\"logprobs\":[-1]}\n",
                               &report),
                   OT_OK);
  assert_true(figure(&report, "rms_nats") == 0 && figure(&report, "tokens") == 2);
}

// The completion repeats its prompt; the prompt of a chat has vLLM's prompt_logprobs, in which the
// first token has no value.
static void servers_may_send_the_prompt(void **state) {
  (void)state;
  static const char *const none[] = {"null", "{}"};
  for (int i = 0; i < OT_COUNT(none); i++) {
    const char *const chat = ot_arena_format(
        &arena,
        "{\"prompt_token_ids\":[1,2],\"prompt_logprobs\":[%s,{\"2\":{\"logprob\":-1.5,"
        "\"rank\":3,\"decoded_token\":\"b\"},\"9\":{\"logprob\":-0.5}}],\"choices\":[{"
        "\"logprobs\":{\"content\":[{\"token\":\"token_id:3\",\"logprob\":-2.5}]}}]}\n",
        none[i]);
    ot_judge_report report;
    if (judge_lines("{\"choices\":[{\"logprobs\":{\"tokens\":[\"a\",\"b\",\"c\"],"
                    "\"token_logprobs\":[null,-1.5,-2.5]},\"prompt_token_ids\":[1,2],"
                    "\"token_ids\":[3]}]}\n",
                    chat, &report) != OT_OK)
      fail_msg("%s", ot_fail_message());
    assert_true(figure(&report, "tokens") == 2 && figure(&report, "rms_nats") == 0);
  }
}

static void bad_files_are_refused_with_their_place(void **state) {
  (void)state;
  static const struct {
    const char *a, *part;
  } cases[] = {
      {"{\"tokens\":[5,6],\"logprobs\":[-1]}\n", "a:1: tokens has 2 entries, logprobs has 1"},
      {"{\"tokens\":[5],\"logprobs\":[2.5]}\n", "a:1: token 0 has log-probability 2.5"},
      {"{\"tokens\":[5],\"logprobs\":[\"x\"]}\n", "a:1: token 0 has a log-probability that is no"},
      {"{\"tokens\":[-5],\"logprobs\":[-1]}\n", "a:1: token 0 has no id"},
      {"{\"tokens\":[6],\"logprobs\":[-1]}\n", "token 0 of 1 is 6, token 0 of 1 is 5"},
      {"{\"tokens\":[5],\"logprobs\":[-1]}\n\n{\"tokens\":[5]}\n", "a:3: there are no log-prob"},
      {"{\"choices\":[{\"text\":\"\"}]}\n", "a:1: there are no logprobs"},
      {"{\"choices\":[{\"prompt_logprobs\":[{\"x\":{}}]}]}\n", "\"x\" is not an id"},
      {"{\"meta_info\":{\"output_token_logprobs\":[[-1]]}}\n", "is not [logprob, id, text]"},
      {"{\"choices\":3}\n", "a:1: choices is not a list"},
      {"[\n", "a:1:"},
      {"", "there are no log-probabilities"},
      {"{\"error\":\"x\"}\n", "there are no log-probabilities"},
      {"{\"tokens\":[\"t\"],\"logprobs\":[-1]}\n", "token 0 of 1 is 't'"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    ot_judge_report report;
    const ot_status status =
        judge_lines(cases[i].a, "{\"tokens\":[5],\"logprobs\":[-1]}\n", &report);
    assert_int_not_equal(status, OT_OK);
    if (!strstr(ot_fail_message(), cases[i].part)) fail_msg("%d: %s", i, ot_fail_message());
  }
}

static void refuses_ids_that_the_model_lacks(void **state) {
  (void)state;
  const char *const lines = "{\"context_tokens\":[1],\"tokens\":[5,600],\"logprobs\":[-1,-2]}\n";
  const ot_judge_logprobs_request request = {
      .path = {write_lines("a", lines), write_lines("b", lines)},
      .checkpoint = fixture(""),
      .most_tokens = 1 << 14,
      .threads = 1};
  ot_judge_report report;
  assert_int_equal(ot_judge_logprobs(&request, &arena, &report), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "token 2 is 600"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(sound_pairs_are_clean, begin, finish),
      cmocka_unit_test_setup_teardown(rounding_of_an_unknown_type_is_inconclusive, begin, finish),
      cmocka_unit_test_setup_teardown(faults_are_named_with_a_checkpoint, begin, finish),
      cmocka_unit_test_setup_teardown(faults_are_named_by_two_files_alone, begin, finish),
      cmocka_unit_test_setup_teardown(figures_are_those_of_their_formulas, begin, finish),
      cmocka_unit_test_setup_teardown(values_alone_show_faults_of_lists, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(servers_may_send_the_prompt, open_directory, close_directory),
      cmocka_unit_test_setup_teardown(bad_files_are_refused_with_their_place, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(refuses_ids_that_the_model_lacks, open_directory,
                                      close_directory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
