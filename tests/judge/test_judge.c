// SPDX-License-Identifier: Apache-2.0
// run: any machine. Verdicts on records that tests/fixtures/judge/make_records.py made with
// PyTorch, sound and with faults, and on copies of a sound one in which a fault is planted here.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "judge/judge.h"
#include "judge/planted_record.h"

static ot_judge_report judge(const char *path) {
  ot_judge_report report;
  const ot_judge_request request = {.record = path, .threads = 1};
  if (ot_judge_record(&request, &arena, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report;
}

static const ot_judge_finding *find(const ot_judge_report *report, const char *what) {
  for (int i = 0; i < report->num_findings; i++) {
    if (strcmp(report->findings[i].what, what) == 0) return &report->findings[i];
  }
  fail_msg("no finding %s:\n%s", what, ot_judge_report_print(report));
  return NULL;
}

// Exactly one finding.
static const ot_judge_finding *only(const ot_judge_report *report, const char *what) {
  if (report->num_findings != 1) fail_msg("%s", ot_judge_report_print(report));
  return find(report, what);
}

// ---- records of other software ----

static void sound_records_are_clean(void **state) {
  (void)state;
  static const char *const names[] = {"llama_fp32",  "llama_bf16",  "llama_ddp",
                                      "llama_fsdp2", "llama_decay", "qwen3_fp32",
                                      "qwen3_bf16",  "qwen3_tp",    "qwen3_tp_bf16"};
  for (int i = 0; i < OT_COUNT(names); i++) {
    const ot_judge_report report = judge(fixture(names[i]));
    if (report.verdict != OT_VERDICT_CLEAN)
      fail_msg("%s: %s", names[i], ot_judge_report_print(&report));
    assert_true(report.num_parts >= 3);
  }
}

static void a_missing_reduction_is_named(void **state) {
  (void)state;
  const ot_judge_report report = judge(fixture("qwen3_tp_unreduced"));
  const ot_judge_finding *const f = only(&report, "missing_reduction");
  assert_string_equal(f->axis, "tp");
  assert_string_equal(f->factor, "sum");
  assert_non_null(strstr(f->tensors, "q_norm"));
  assert_non_null(strstr(f->tensors, "k_norm"));
  assert_null(strstr(f->tensors, "layernorm"));
  assert_true(f->confirmed <= 4);
  assert_non_null(strstr(f->evidence, "the norm is 1.886"));
  assert_non_null(strstr(f->evidence, "weights after the step"));
}

static void wrong_losses_are_named(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"llama_ddp_means", "mean_of_means"},
                                         {"llama_shifted", "labels_shifted_again"}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_judge_report report = judge(fixture(cases[i][0]));
    const ot_judge_finding *const f = only(&report, cases[i][1]);
    assert_string_equal(f->tensors, "all 21 tensors");
    assert_string_equal(f->factor, "1");
    assert_true(f->confirmed <= 4);
    assert_non_null(strstr(f->evidence, "the recorded loss is that of this fault"));
  }
}

// ---- activations and choices of experts ----

// Layer 1 of 3 has a hundred times the epsilon in its first norm.
static void the_layer_of_a_fault_is_named(void **state) {
  (void)state;
  const ot_judge_report report = judge(fixture("moe_epsilon"));
  const ot_judge_finding *const f = find(&report, "gradient");
  assert_non_null(strstr(f->evidence, "the forward pass departs in layer 1 ("));
  assert_non_null(strstr(f->evidence, "agrees in the 2 others"));
  assert_non_null(strstr(f->advice, "--layers 1..1"));
}

static ot_judge_report judge_layers(const char *path, int first, int last) {
  ot_judge_report report;
  const ot_judge_layers layers = {first, last};
  const ot_judge_request request = {.record = path, .layers = &layers, .threads = 1};
  if (ot_judge_record(&request, &arena, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report;
}

static void layers_are_judged_alone(void **state) {
  (void)state;
  const ot_judge_report faulty = judge_layers(fixture("moe_epsilon"), 1, 1);
  assert_int_equal(faulty.verdict, OT_VERDICT_FINDING);
  for (int layer = 0; layer < 3; layer += 2) {
    const ot_judge_report report = judge_layers(fixture("moe_epsilon"), layer, layer);
    if (report.verdict != OT_VERDICT_CLEAN) fail_msg("%s", ot_judge_report_print(&report));
  }
}

static void layers_without_activations_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *record;
    int first, last;
    const char *message;
  } cases[] = {{"llama_fp32", 1, 1, "need act of layer 0; batch 0"},
               {"llama_fp32", 0, 7, "0 <= A <= B <= 1"},
               {"moe_epsilon", 2, 1, "0 <= A <= B <= 2"}};
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_judge_layers layers = {cases[i].first, cases[i].last};
    const ot_judge_request request = {
        .record = fixture(cases[i].record), .layers = &layers, .threads = 1};
    ot_judge_report report;
    assert_int_equal(ot_judge_record(&request, &arena, &report), OT_USAGE);
    assert_non_null(strstr(ot_fail_message(), cases[i].message));
  }
}

// With the recorded choices, rounding of bf16 does not make the verdict inconclusive.
static void recorded_choices_of_experts_are_used(void **state) {
  (void)state;
  const ot_judge_report report = judge(fixture("moe_bf16"));
  if (report.verdict != OT_VERDICT_CLEAN) fail_msg("%s", ot_judge_report_print(&report));
  assert_non_null(strstr(ot_judge_report_print(&report), "0 beyond rounding"));
}

// The balancing loss of transformers, with the coefficient of config.json, is no fault.
static void a_balancing_loss_over_all_layers_is_known(void **state) {
  (void)state;
  const ot_judge_report report = judge(fixture("moe_balance"));
  const char *const text = ot_judge_report_print(&report);
  if (report.verdict != OT_VERDICT_CLEAN) fail_msg("%s", text);
  assert_non_null(
      strstr(text, "balance_loss_over_layers added with the coefficient of config.json (1"));
}

// The loss of transformers is the sum of both: 3.765043 and 0.1 times its balancing loss, 2.121550.
static void a_loss_may_have_that_of_routers(void **state) {
  (void)state;
  const planted_text text = {"rank-00000.json", "\"loss\": 3.765043258666992",
                             "\"loss\": 3.977198278903961"};
  const ot_judge_report report =
      judge(plant_record(fixture("moe_balance"), scratch_path(directory, "routers"), NULL, &text));
  const char *const words = ot_judge_report_print(&report);
  if (report.verdict != OT_VERDICT_CLEAN) fail_msg("%s", words);
  assert_non_null(strstr(words, "3.977198 with those of routers"));
}

// ---- settings far from those of config.json ----

// A copy of a record in fp32 whose config.json has another setting than the recorded step.
static ot_judge_report judge_with(const char *from, const char *to) {
  const planted_text text = {"config.json", from, to};
  return judge(
      plant_record(fixture("qwen3_fp32"), scratch_path(directory, "setting"), NULL, &text));
}

static void settings_that_are_far_off_show_the_right_ones(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *fault, *words;
  } cases[] = {
      {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-03", "norm_epsilon",
       "norms have the epsilon 1e-05 in place of 0.001"},
      {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 4e-02", "norm_epsilon",
       "norms have the epsilon 1e-05 in place of 0.04"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 7000000", "rope_base",
       "rotations have the base 1e+04 in place of 7e+06"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 3000.00", "rope_base",
       "rotations have the base 1e+04 in place of 3000"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 10500.0", "rope_base",
       "rotations have the base 1e+04 in place of 1.05e+04"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_judge_report report = judge_with(cases[i].from, cases[i].to);
    const ot_judge_finding *const f = only(&report, cases[i].fault);
    if (!strstr(f->evidence, cases[i].words)) fail_msg("%s", f->evidence);
    assert_string_equal(f->tensors, "all 24 tensors");
    assert_true(f->confirmed <= 4);
  }
}

static bool is_gradient(const char *key) { return strncmp(key, "grad/", 5) == 0; }

static float scale_of_queries;

static void scale_queries(const char *key, float *values, int64_t count) {
  if (strstr(key, "q_norm.weight") && strncmp(key, "weight/", 7) == 0)
    for (int64_t i = 0; i < count; i++) values[i] *= scale_of_queries;
  if (strstr(key, "q_norm.weight") && is_gradient(key))
    for (int64_t i = 0; i < count; i++) values[i] /= scale_of_queries;
}

// ---- planted faults ----

static const char *planted = "llama_fp32";

// A copy of the record `planted`, whose tensors `change` edits, and whose text has `from` replaced
// by `to`, of the same length.
static const char *plant(edit *change, const char *from, const char *to) {
  const planted_text text = {"rank-00000.json", from, to};
  return plant_record(fixture(planted), scratch_path(directory, "record"), change,
                      from ? &text : NULL);
}

// Queries with norms of other weights give the scores, and all other gradients, of another scale.
static void a_scale_of_scores_is_fitted(void **state) {
  (void)state;
  static const float scales[] = {0.4f, 1.3f, 3.0f};
  for (int i = 0; i < OT_COUNT(scales); i++) {
    scale_of_queries = scales[i];
    const ot_judge_report report = judge(
        plant_record(fixture("qwen3_fp32"), scratch_path(directory, "scale"), scale_queries, NULL));
    const ot_judge_finding *const f = find(&report, "attention_scale");
    assert_float_equal(strtod(f->factor, NULL), 1 / (double)scales[i], 2e-3);
  }
}

static void halve(const char *key, float *values, int64_t count) {
  for (int64_t i = 0; i < count && is_gradient(key); i++) values[i] *= 0.5f;
}

// The two experts of four that token 3 is not sent to.
static void send_elsewhere(const char *key, float *values, int64_t count) {
  int32_t *const routes = (int32_t *)(void *)values;
  if (strcmp(key, "routes/0.model.layers.1.mlp.gate") != 0) return;
  assert_int_equal(count, 48);
  const int32_t a = routes[6], b = routes[7];
  int to = 6;
  for (int32_t e = 0; e < 4; e++)
    if (e != a && e != b) routes[to++] = e;
}

static void choices_beyond_rounding_are_named(void **state) {
  (void)state;
  planted = "moe_bf16";
  const ot_judge_report report = judge(plant(send_elsewhere, NULL, NULL));
  planted = "llama_fp32";
  assert_int_equal(report.verdict, OT_VERDICT_FINDING);
  const char *const text = ot_judge_report_print(&report);
  assert_non_null(strstr(text, "1 beyond rounding"));
  assert_non_null(strstr(text, "token 3 of batch 0, data rank 0, in layer 1"));
}

static void a_common_factor_is_named(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(halve, NULL, NULL));
  const ot_judge_finding *const f = find(&report, "factor");
  assert_string_equal(f->tensors, "all 21 tensors");
  assert_string_equal(f->factor, "0.5");
  assert_true(f->confirmed <= 4);
  assert_string_equal(find(&report, "norm_factor")->factor, "2");
}

// Halves gradients that have the rounding of products in bf16.
static void halve_rounded(const char *key, float *values, int64_t count) {
  uint64_t seed = 7;
  for (int64_t i = 0; i < count && is_gradient(key); i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    values[i] *= 0.5f * (1 + 0.006f * ((float)(seed >> 40) / 8388608.0f - 1));
  }
}

static void a_fault_does_not_hide_products_in_bf16(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(halve_rounded, NULL, NULL));
  assert_non_null(strstr(report.step, "products in bf16"));
  assert_float_equal(strtod(find(&report, "factor")->factor, NULL), 0.5, 1e-3);
}

static void clear_norms(const char *key, float *values, int64_t count) {
  if (is_gradient(key) && strstr(key, "post_attention_layernorm"))
    memset(values, 0, (size_t)count * sizeof *values);
}

static void gradients_that_are_zero_are_a_factor_of_zero(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(clear_norms, NULL, NULL));
  const ot_judge_finding *const f = find(&report, "factor_on_some");
  assert_string_equal(f->factor, "0");
  assert_non_null(strstr(f->tensors, "post_attention_layernorm"));
  assert_null(strstr(f->tensors, "input_layernorm"));
}

static float weight_of_down[1 << 16];

static void add_weight(const char *key, float *values, int64_t count) {
  // Weights follow gradients in the file, so they are known from the first pass.
  if (strcmp(key, "weight/model.layers.0.mlp.down_proj.weight") == 0)
    memcpy(weight_of_down, values, (size_t)count * sizeof *values);
  if (strcmp(key, "grad/model.layers.0.mlp.down_proj.weight") == 0) {
    for (int64_t i = 0; i < count; i++) values[i] += weight_of_down[i];
  }
}

static void weights_in_a_gradient_are_named(void **state) {
  (void)state;
  (void)plant(add_weight, NULL, NULL);  // fills weight_of_down
  const ot_judge_report report = judge(plant(add_weight, NULL, NULL));
  assert_string_equal(find(&report, "stale_buffer")->tensors,
                      "model.layers.0.mlp.down_proj.weight");
}

static void break_one(const char *key, float *values, int64_t count) {
  if (strcmp(key, "grad/model.layers.1.self_attn.k_proj.weight") != 0) return;
  values[count / 2] = NAN;
}

static void numbers_that_are_not_finite_are_named(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(break_one, NULL, NULL));
  assert_string_equal(find(&report, "not_finite")->tensors,
                      "model.layers.1.self_attn.k_proj.weight");
}

// Below the layer, everything is wrong in a way that no hypothesis has.
static void turn(const char *key, float *values, int64_t count) {
  const bool below = strstr(key, "layers.0.") || strstr(key, "embed_tokens");
  if (!is_gradient(key) || !below) return;
  for (int64_t i = 0; i < count; i++) values[i] *= i % 3 == 0 ? 1.5f : 0.8f;
}

static void an_unknown_fault_has_its_place(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(turn, NULL, NULL));
  const ot_judge_finding *const f = find(&report, "gradient");
  assert_true(isnan(f->confirmed));
  assert_non_null(strstr(f->evidence, "begins at model.layers.0."));
}

static void move_more(const char *key, float *values, int64_t count) {
  if (strcmp(key, "after/model.layers.1.mlp.up_proj.weight") != 0) return;
  for (int64_t i = 0; i < count; i++) values[i] += 1e-3f;
}

static void a_wrong_update_is_named(void **state) {
  (void)state;
  const ot_judge_report report = judge(plant(move_more, NULL, NULL));
  assert_string_equal(only(&report, "update")->tensors, "model.layers.1.mlp.up_proj.weight");
}

static void wrong_settings_of_an_update_show_the_right_ones(void **state) {
  (void)state;
  const ot_judge_report report =
      judge(plant(NULL, "\"weight_decay\": 0.1", "\"weight_decay\": 0.0"));
  const ot_judge_finding *const f = only(&report, "update_decay");
  assert_non_null(strstr(f->evidence, "a decay of 0.1 (0)"));
}

// As if each of the micro-batches had its own copy of the vocabulary.
static void a_loss_over_repeated_logits_is_named(void **state) {
  (void)state;
  const ot_judge_report report =
      judge(plant(NULL, "\"loss\": 3.511361966814314", "\"loss\": 4.897656327934205"));
  assert_non_null(strstr(only(&report, "loss")->evidence, "ln micro_batches more than it"));
}

static const ot_sensitivity *sensitivity(const ot_judge_report *report, const char *what) {
  for (int i = 0; i < report->num_sensitivities; i++) {
    if (strcmp(report->sensitivities[i].what, what) == 0) return &report->sensitivities[i];
  }
  fail_msg("no sensitivity %s", what);
  return NULL;
}

// In bf16, a decay of 0.1 at a rate of 0.01 is below the rounding of a weight.
static void what_an_update_does_not_show_is_stated(void **state) {
  (void)state;
  static const char *const hidden = "a decay of 0.1 is below rounding in 21 of 21 tensors";
  const ot_judge_report fine = judge(fixture("llama_fp32")), coarse = judge(fixture("llama_bf16"));
  assert_true(sensitivity(&fine, "update_decay")->factor < 1e-3);
  assert_true(sensitivity(&fine, "update_rate")->factor < 1e-4);
  assert_true(sensitivity(&coarse, "update_decay")->factor > 0.1);
  assert_null(strstr(ot_judge_report_print(&fine), "below rounding"));
  assert_non_null(strstr(ot_judge_report_print(&coarse), hidden));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_directory, close_directory)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(sound_records_are_clean),
      TEST(a_missing_reduction_is_named),
      TEST(wrong_losses_are_named),
      TEST(the_layer_of_a_fault_is_named),
      TEST(layers_are_judged_alone),
      TEST(layers_without_activations_are_refused),
      TEST(recorded_choices_of_experts_are_used),
      TEST(choices_beyond_rounding_are_named),
      TEST(a_balancing_loss_over_all_layers_is_known),
      TEST(settings_that_are_far_off_show_the_right_ones),
      TEST(a_scale_of_scores_is_fitted),
      TEST(a_common_factor_is_named),
      TEST(a_fault_does_not_hide_products_in_bf16),
      TEST(gradients_that_are_zero_are_a_factor_of_zero),
      TEST(weights_in_a_gradient_are_named),
      TEST(numbers_that_are_not_finite_are_named),
      TEST(an_unknown_fault_has_its_place),
      TEST(a_wrong_update_is_named),
      TEST(a_loss_may_have_that_of_routers),
      TEST(a_loss_over_repeated_logits_is_named),
      TEST(what_an_update_does_not_show_is_stated),
      TEST(wrong_settings_of_an_update_show_the_right_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
