// SPDX-License-Identifier: Apache-2.0
// run: any machine. build/bench/published on a small file of published runs: its documented JSON,
// no missing rows, and its errors for broken files. docs/published.md gives the accuracy of the
// predictions; here they only need the right magnitude.
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "support/scratch.h"

enum { OUTPUT_BYTES = 1 << 16 };

// Runs the benchmark with `arguments`; returns its exit code, and stdout and stderr in `output`.
static int run(const char *arguments, char output[OUTPUT_BYTES]) {
  char command[2048];
  snprintf(command, sizeof command, "%s/bench/published %s 2>&1", OT_BUILD_DIR, arguments);
  FILE *const pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t length = fread(output, 1, OUTPUT_BYTES - 1, pipe);
  output[length] = '\0';
  const int status = pclose(pipe);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static json_t *run_small(void) {
  static char output[OUTPUT_BYTES];
  char arguments[512];
  snprintf(arguments, sizeof arguments, "--json %s", fixture_path("published_small.json"));
  if (run(arguments, output) != 0) fail_msg("%s", output);
  json_t *const root = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  if (!root) fail_msg("no JSON: %s", output);
  return root;
}

static double number(const json_t *root, const char *group, const char *key) {
  const json_t *const value = json_object_get(json_object_get(root, group), key);
  if (!json_is_number(value)) fail_msg("%s.%s is no number", group, key);
  return json_number_value(value);
}

static void every_group_has_its_rows_and_figures(void **state) {
  (void)state;
  json_t *const root = run_small();
  static const struct {
    const char *name;
    int rows;
  } groups[] = {{"all", 6}, {"core", 5}, {"memory", 1}};
  static const char *const keys[] = {"mape", "median", "within10", "source_macro"};
  for (int g = 0; g < 3; g++) {
    assert_int_equal(number(root, groups[g].name, "rows"), groups[g].rows);
    for (int k = 0; k < 4; k++) {
      const double value = number(root, groups[g].name, keys[k]);
      assert_true(value >= 0 && value <= 100);
    }
  }
  assert_int_equal(number(root, "moe", "rows"), 0);
  assert_int_equal(number(root, "cp", "rows"), 0);
  assert_true(json_is_null(json_object_get(json_object_get(root, "cp"), "mape")));
  const json_t *const sources = json_object_get(root, "sources");
  assert_int_equal(json_object_size(sources), 3);
  const json_t *const sc21 =
      json_object_get(sources, "Megatron-LM SC21 Table 1 (arXiv 2104.04473)");
  assert_int_equal(json_integer_value(json_object_get(sc21, "rows")), 1);
  json_decref(root);
}

// Ten sources to which nothing was fitted; docs/published.md has their figures.
static void runs_of_other_sources_are_priced(void **state) {
  (void)state;
  static char output[OUTPUT_BYTES];
  assert_int_equal(run("--json --unnamed " OT_SOURCE_DIR "/bench/published/held_out.json", output),
                   0);
  json_t *const root = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(root);
  assert_int_equal(number(root, "all", "rows"), 61);
  assert_int_equal(json_array_size(json_object_get(root, "unpriced")), 0);
  assert_true(number(root, "core", "source_macro") < 12.5);
  assert_true(number(root, "moe", "source_macro") < 18.5);
  assert_true(number(root, "all", "cover95") > 92);
  json_decref(root);
}

static void runs_of_papers_are_priced_within_a_third(void **state) {
  (void)state;
  json_t *const root = run_small();
  assert_true(number(root, "core", "mape") < 33);
  json_decref(root);
}

static void a_row_that_cannot_be_priced_is_listed_and_counts_as_all_wrong(void **state) {
  (void)state;
  json_t *const root = run_small();
  // The planner's own table of published runs contains them all.
  assert_int_equal(json_array_size(json_object_get(root, "beyond")), 0);
  const json_t *const unpriced = json_object_get(root, "unpriced");
  assert_int_equal(json_array_size(unpriced), 1);
  assert_string_equal(json_string_value(json_array_get(unpriced, 0)), "abacus-000");
  // The other five are core: their total and 100 give the mean over all six.
  const double expected = (5 * number(root, "core", "mape") + 100) / 6;
  assert_true(number(root, "all", "mape") - expected < 1e-9);
  assert_true(expected - number(root, "all", "mape") < 1e-9);
  json_decref(root);
}

static void text_names_sources_peers_and_what_is_not_priced(void **state) {
  (void)state;
  static char output[OUTPUT_BYTES];
  char arguments[512];
  snprintf(arguments, sizeof arguments, "--rows --worst 2 %s",
           fixture_path("published_small.json"));
  assert_int_equal(run(arguments, output), 0);
  static const char *const words[] = {"OneFlow DLPerf", "calculon", "llm-analysis",     "ranking",
                                      "worst rows",     "rar5-003", "no cluster preset"};
  for (int i = 0; i < 7; i++) {
    if (!strstr(output, words[i])) fail_msg("no \"%s\" in:\n%s", words[i], output);
  }
}

// Runs it on a file of `text` and expects an error of exit code 2 with `message`.
static void expect_error(const char *text, const char *message) {
  static char output[OUTPUT_BYTES];
  char directory[SCRATCH_BYTES], arguments[512];
  scratch_create(directory);
  const char *const path = scratch_path(directory, "broken.json");
  scratch_write(path, text, (int64_t)strlen(text));
  snprintf(arguments, sizeof arguments, "--json %s", path);
  const int code = run(arguments, output);
  scratch_destroy(directory);
  if (code != 2 || !strstr(output, message)) {
    fail_msg("exit %d instead of 2, or no \"%s\": %s", code, message, output);
  }
  assert_int_equal(strncmp(output, "error: ", 7), 0);
}

// With the constants of the presets, only the name is hidden.
static void a_source_never_seen_has_no_engine_of_its_own(void **state) {
  (void)state;
  static char output[OUTPUT_BYTES];
  static const char left_out[] = "{\"OneFlow DLPerf GPT\": {}}";
  char directory[SCRATCH_BYTES], arguments[1024];
  double mape[2];
  scratch_create(directory);
  const char *const path = scratch_path(directory, "left_out.json");
  scratch_write(path, left_out, (int64_t)strlen(left_out));
  for (int named = 0; named < 2; named++) {
    snprintf(arguments, sizeof arguments, "--json --left-out %s %s %s", path,
             named ? "--named" : "", fixture_path("published_small.json"));
    assert_int_equal(run(arguments, output), 0);
    json_t *const root = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const json_t *const out = json_object_get(root, "left_out");
    assert_int_equal(number(out, "core", "rows"), 1);
    assert_true(number(out, "core", "between") > 0 && number(out, "core", "within") > 0);
    mape[named] = number(out, "core", "mape");
    if (named)
      assert_true(mape[1] ==
                  number(json_object_get(root, "sources"), "OneFlow DLPerf GPT", "mape"));
    json_decref(root);
  }
  scratch_destroy(directory);
  assert_true(mape[0] != mape[1]);
}

static void broken_rows_name_file_row_and_key(void **state) {
  (void)state;
  expect_error("{}", "broken.json: not a list of runs");
  expect_error("[7]", "row 0 (from 0) is not an object with an \"id\"");
  expect_error("[{\"id\": \"a\", \"source\": \"s\", \"gpu\": {}}]",
               "row a: key \"model\" is missing or not an object");
  expect_error("[{\"id\": \"a\", \"source\": \"s\", \"model\": {}, \"gpu\": 1}]",
               "row a: key \"gpu\" is missing or not an object");
  expect_error("[{\"id\": \"a\", \"source\": \"s\", \"model\": {}, \"gpu\": {}, \"tp\": \"two\"}]",
               "row a: key \"tp\" is not an integer");
  expect_error("[{\"id\": \"a\", \"source\": \"s\", \"gpu\": {}, \"model\": {\"vocab\": -1}}]",
               "row a: model: key \"vocab\" is not an integer");
  expect_error(
      "[{\"id\": \"a\", \"source\": \"s\", \"model\": {}, \"gpu\": {}},"
      " {\"id\": \"a\", \"source\": \"s\", \"model\": {}, \"gpu\": {}}]",
      "two rows have the id a");
  expect_error(
      "[{\"id\": \"a\", \"source\": \"s\", \"model\": {}, \"gpu\": {},"
      " \"usable_for_step_time\": true}]",
      "row a: usable_for_step_time without a step_time_s");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_group_has_its_rows_and_figures),
      cmocka_unit_test(runs_of_papers_are_priced_within_a_third),
      cmocka_unit_test(runs_of_other_sources_are_priced),
      cmocka_unit_test(a_row_that_cannot_be_priced_is_listed_and_counts_as_all_wrong),
      cmocka_unit_test(text_names_sources_peers_and_what_is_not_priced),
      cmocka_unit_test(a_source_never_seen_has_no_engine_of_its_own),
      cmocka_unit_test(broken_rows_name_file_row_and_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
