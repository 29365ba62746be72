// SPDX-License-Identifier: Apache-2.0
// run: any machine. Two records of one step: those that tests/fixtures/judge/make_records.py made
// with PyTorch, sound and with faults, in several layouts and types; and copies that differ in a
// value, so that they are of another step, not repeatable, or apart within rounding.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "judge/judge_pair.h"
#include "judge/planted_record.h"

static ot_status try_pair(const char *first, const char *second, ot_judge_type type,
                          ot_judged_pair *out) {
  const ot_judge_request request = {.record = first, .type = type, .threads = 1};
  return ot_judge_pair(&request, second, &arena, out);
}

static const ot_judged_pair *judge(const char *first, const char *second) {
  ot_judged_pair *const pair = ot_arena_take(&arena, sizeof *pair);
  if (try_pair(first, second, OT_JUDGE_AUTO, pair) != OT_OK) fail_msg("%s", ot_fail_message());
  return pair;
}

static const ot_judge_finding *find(const ot_judged_pair *pair, const char *what) {
  for (int i = 0; i < pair->difference.num_findings; i++) {
    if (strcmp(pair->difference.findings[i].what, what) == 0) return &pair->difference.findings[i];
  }
  fail_msg("no finding %s:\n%s", what, ot_judged_pair_print(pair));
  return NULL;
}

static const ot_judged_part *find_part(const ot_judged_pair *pair, const char *name) {
  for (int i = 0; i < pair->difference.num_parts; i++) {
    if (strcmp(pair->difference.parts[i].name, name) == 0) return &pair->difference.parts[i];
  }
  fail_msg("no part %s:\n%s", name, ot_judged_pair_print(pair));
  return NULL;
}

static double largest_of(const ot_judged_pair *pair) {
  double largest = 0;
  for (int t = 0; t < pair->difference.num_tensors; t++)
    largest = fmax(largest, pair->difference.tensors[t].ratio);
  return largest;
}

// ---- records of other software ----

static void the_wrong_record_and_its_fault_are_named(void **state) {
  (void)state;
  static const struct {
    const char *first, *second, *what;
    int wrong;
    bool same_layout;
  } cases[] = {{"qwen3_tp", "qwen3_tp_unreduced", "missing_reduction", 2, true},
               {"qwen3_tp_unreduced", "qwen3_fp32", "missing_reduction", 1, false},
               {"llama_ddp", "llama_ddp_means", "mean_of_means", 2, true},
               {"llama_fp32", "llama_ddp_means", "mean_of_means", 2, false},
               {"llama_shifted", "llama_bf16", "labels_shifted_again", 1, true}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_judged_pair *const pair = judge(fixture(cases[i].first), fixture(cases[i].second));
    const ot_judge_finding *const f = find(pair, cases[i].what);
    assert_int_equal(pair->difference.verdict, OT_VERDICT_FINDING);
    assert_int_equal(pair->difference.num_findings, 1);
    assert_int_equal(f->record, cases[i].wrong);
    assert_true(pair->departs[cases[i].wrong - 1]);
    assert_false(pair->departs[2 - cases[i].wrong]);
    assert_true(pair->same_layout == cases[i].same_layout);
    assert_false(pair->same_values);
    assert_true(largest_of(pair) > 10);
    assert_false(find_part(pair, "gradient")->agrees);
    const char *const step = cases[i].wrong == 1 ? "the recomputed step" : "it";
    const char *const words = ot_arena_format(&arena, "record %d departs from %s (%s",
                                              cases[i].wrong, step, cases[i].what);
    assert_non_null(strstr(pair->conclusion, words));
  }
}

static void sound_records_differ_by_rounding(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"qwen3_fp32", "qwen3_tp"},
                                         {"llama_ddp", "llama_fp32"},
                                         {"llama_fsdp2", "llama_ddp"},
                                         {"llama_fp32", "llama_bf16"},
                                         {"qwen3_tp_bf16", "qwen3_fp32"}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_judged_pair *const pair = judge(fixture(cases[i][0]), fixture(cases[i][1]));
    if (pair->difference.verdict != OT_VERDICT_CLEAN) fail_msg("%s", ot_judged_pair_print(pair));
    assert_false(pair->same_values);
    assert_true(largest_of(pair) > 0 && largest_of(pair) <= 4);
    for (int p = 0; p < pair->difference.num_parts; p++)
      assert_true(pair->difference.parts[p].agrees);
  }
}

// The step is computed once for both, in types and divisions of both, and says the same of each.
// A report without its sensitivities: alone, hypotheses are measured on fewer tensors.
static const char *verdict_of(const ot_judge_report *report) {
  const char *const text = ot_judge_report_print(report);
  return ot_arena_text(&arena, text, strstr(text, "smallest fault") - text);
}

static void each_record_has_the_report_that_it_has_alone(void **state) {
  (void)state;
  static const char *const names[] = {"llama_fp32", "llama_ddp_means"};
  const ot_judged_pair *const pair = judge(fixture(names[0]), fixture(names[1]));
  for (int i = 0; i < 2; i++) {
    ot_judge_report alone;
    const ot_judge_request request = {.record = fixture(names[i]), .threads = 1};
    assert_int_equal(ot_judge_record(&request, &arena, &alone), OT_OK);
    assert_string_equal(verdict_of(&pair->records[i]), verdict_of(&alone));
  }
}

static void a_record_and_itself_have_the_same_values(void **state) {
  (void)state;
  const ot_judged_pair *const pair = judge(fixture("llama_fsdp2"), fixture("llama_fsdp2"));
  assert_int_equal(pair->difference.verdict, OT_VERDICT_CLEAN);
  assert_true(pair->same_values && pair->same_layout && pair->same_types && pair->same_software);
  assert_true(largest_of(pair) == 0);
  assert_non_null(strstr(find_part(pair, "repeats")->words, "same bits"));
}

static void a_fault_of_both_records_is_the_same(void **state) {
  (void)state;
  const ot_judged_pair *const pair = judge(fixture("llama_shifted"), fixture("llama_shifted"));
  assert_true(pair->departs[0] && pair->departs[1] && pair->same_values);
  assert_int_equal(pair->difference.num_findings, 2);
  assert_non_null(strstr(pair->conclusion, "in the same way"));
}

// ---- copies ----

static const char *plant(const char *name, edit *change, const planted_text *text) {
  return plant_record(fixture("llama_fp32"), scratch_path(directory, name), change, text);
}

static const ot_judged_pair *judge_copy(edit *change) {
  return judge(fixture("llama_fp32"), plant("copy", change, NULL));
}

static void move_last_bit(const char *key, float *values, int64_t count) {
  if (strcmp(key, "grad/model.layers.1.mlp.up_proj.weight") == 0)
    values[count / 2] = nextafterf(values[count / 2], 1);
}

static void other_bits_within_rounding_are_not_repeatable_but_clean(void **state) {
  (void)state;
  const ot_judged_pair *const pair = judge_copy(move_last_bit);
  assert_int_equal(pair->difference.verdict, OT_VERDICT_CLEAN);
  assert_false(pair->same_values);
  assert_non_null(strstr(find_part(pair, "repeats")->words, "within rounding; not repeatable"));
  int differing = 0;
  for (int t = 0; t < pair->difference.num_tensors; t++) {
    const ot_judged_tensor *const at = &pair->difference.tensors[t];
    const bool edited = strcmp(at->name, "model.layers.1.mlp.up_proj.weight") == 0;
    assert_int_equal(pair->compared[t].elements, edited);
    differing += at->ratio > 0;
  }
  assert_int_equal(differing, 1);
}

// As if a kernel had read a part of the gradient before it was complete.
static void lose_half(const char *key, float *values, int64_t count) {
  if (strcmp(key, "grad/model.layers.0.mlp.down_proj.weight") == 0)
    memset(values, 0, (size_t)(count / 2) * sizeof *values);
}

static void other_bits_beyond_rounding_are_a_finding(void **state) {
  (void)state;
  const ot_judged_pair *const pair = judge_copy(lose_half);
  const ot_judge_finding *const f = find(pair, "not_repeatable");
  assert_int_equal(f->record, 0);
  assert_string_equal(f->tensors, "model.layers.0.mlp.down_proj.weight");
  assert_true(pair->departs[1] && !pair->departs[0]);
  assert_int_equal(find(pair, "gradient")->record, 2);
}

static void break_one(const char *key, float *values, int64_t count) {
  if (strcmp(key, "grad/model.layers.1.self_attn.k_proj.weight") == 0) values[count / 2] = NAN;
}

static void numbers_that_are_not_finite_differ(void **state) {
  (void)state;
  const ot_judged_pair *const pair = judge_copy(break_one);
  assert_int_equal(find(pair, "not_finite")->record, 2);
  assert_true(isinf(largest_of(pair)));
  assert_false(find_part(pair, "gradient")->agrees);
  assert_non_null(strstr(ot_judged_pair_json(pair), "\"difference\": null"));
}

static void move_weights(const char *key, float *values, int64_t count) {
  (void)count;
  if (strcmp(key, "after/model.layers.1.mlp.up_proj.weight") == 0) values[0] += 1e-3f;
}

// The judge compares the updates of an optimizer that it does not know only with each other.
static void weights_that_differ_although_gradients_do_not_are_a_finding(void **state) {
  (void)state;
  const planted_text other = {"rank-00000.json", "\"AdamW\"", "\"Lion1\""};
  const ot_judged_pair *const pair =
      judge(plant("a", NULL, &other), plant("b", move_weights, &other));
  assert_int_equal(pair->difference.num_findings, 1);
  assert_string_equal(find(pair, "update_differs")->tensors, "model.layers.1.mlp.up_proj.weight");
  assert_false(find_part(pair, "weights")->agrees);
  assert_true(find_part(pair, "gradient")->agrees);
}

// Neither record shows a factor of three thousandths in bf16; both together show the six.
static void shrink(const char *key, float *values, int64_t count) {
  for (int64_t i = 0; i < count && strncmp(key, "grad/", 5) == 0; i++) values[i] *= 0.997f;
}

static void grow(const char *key, float *values, int64_t count) {
  for (int64_t i = 0; i < count && strncmp(key, "grad/", 5) == 0; i++) values[i] *= 1.003f;
}

static void a_fault_that_neither_record_shows_is_one_of_the_difference(void **state) {
  (void)state;
  ot_judged_pair pair;
  const char *const a = plant("a", shrink, NULL), *const b = plant("b", grow, NULL);
  if (try_pair(a, b, OT_JUDGE_BF16, &pair) != OT_OK) fail_msg("%s", ot_fail_message());
  const ot_judge_finding *const f = find(&pair, "factor");
  assert_int_equal(f->record, 0);
  assert_string_equal(f->factor, "1.006");
  assert_true(largest_of(&pair) <= 4);
}

// ---- other steps ----

static void refuse(const char *first, const char *second, const char *message) {
  ot_judged_pair pair;
  assert_int_equal(try_pair(first, second, OT_JUDGE_AUTO, &pair), OT_USAGE);
  assert_message_has("not the same step");
  assert_message_has(message);
}

static void move_weight(const char *key, float *values, int64_t count) {
  (void)count;
  if (strcmp(key, "weight/model.layers.1.mlp.gate_proj.weight") == 0) values[7] += 0.5f;
}

static void another_weight_is_named(void **state) {
  (void)state;
  const char *const copy = plant("copy", move_weight, NULL);
  refuse(fixture("llama_fp32"), copy,
         "weight of model.layers.1.mlp.gate_proj.weight differs in 1 of 480 elements");
  assert_message_has("element 7 is");
  assert_message_has(copy);
}

static void change_id(const char *key, float *values, int64_t count) {
  int32_t *const ids = (int32_t *)values;
  (void)count;
  if (strcmp(key, "batch/2.ids") == 0) ids[5] = ids[5] == 3 ? 4 : 3;
}

static void another_token_is_named(void **state) {
  (void)state;
  const char *const copy = plant("copy", change_id, NULL);
  refuse(fixture("llama_fp32"), copy, "the id of token 5 is");
  assert_message_has("rank-00000.safetensors: tensor batch/2.ids, sequence 0) and 3 (");
  // Another layout: the sample is in another batch of another rank.
  refuse(fixture("llama_ddp"), copy,
         "rank-00001.safetensors: tensor batch/0.ids, sequence 0) and 3");
}

static void change_document(const char *key, float *values, int64_t count) {
  int32_t *const documents = (int32_t *)values;
  if (strcmp(key, "batch/0.documents") == 0)
    for (int64_t i = 0; i < count; i++) documents[i] = 0;
}

static void other_documents_are_named(void **state) {
  (void)state;
  refuse(fixture("llama_fp32"), plant("copy", change_document, NULL),
         "the first token of its document of token 9 is 9");
}

static void other_settings_are_named(void **state) {
  (void)state;
  const planted_text cases[] = {{"rank-00000.json", "\"lr\": 0.01", "\"lr\": 0.02"},
                                {"config.json", "\"rope_theta\": 10000", "\"rope_theta\": 10001"},
                                {"rank-00000.json", "\"clip\": 0.5", "\"clip\": 0.6"}};
  static const char *const messages[] = {"the optimizer's lr of", "rope_theta is",
                                         "clipped to 0.5"};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const char *const name = ot_arena_format(&arena, "copy%d", i);
    refuse(fixture("llama_fp32"), plant(name, NULL, &cases[i]), messages[i]);
  }
  refuse(fixture("llama_fp32"), fixture("llama_decay"), "weight_decay of");
  refuse(fixture("llama_fp32"), fixture("qwen3_fp32"), "model_type is \"llama\"");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_directory, close_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_wrong_record_and_its_fault_are_named),
      TEST(sound_records_differ_by_rounding),
      TEST(each_record_has_the_report_that_it_has_alone),
      TEST(a_record_and_itself_have_the_same_values),
      TEST(a_fault_of_both_records_is_the_same),
      TEST(other_bits_within_rounding_are_not_repeatable_but_clean),
      TEST(other_bits_beyond_rounding_are_a_finding),
      TEST(numbers_that_are_not_finite_differ),
      TEST(weights_that_differ_although_gradients_do_not_are_a_finding),
      TEST(a_fault_that_neither_record_shows_is_one_of_the_difference),
      TEST(another_weight_is_named),
      TEST(another_token_is_named),
      TEST(other_documents_are_named),
      TEST(other_settings_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
