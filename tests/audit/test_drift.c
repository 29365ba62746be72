// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2 as threads. Models whose inference equals training are clean, for every family and
// on any mesh; a model that decodes with a different constant is found, with the layer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/math.h"
#include "support/audit_case.h"
#include "support/rank_case_models.h"

static audit_outcome run(const audit_request *request, void (*amend)(ot_model *)) {
  return audit_run_one(request, ot_audit_drift, &(ot_audit_request){.amend_model = amend});
}

// The audit releases the weights that it reads; its report stays valid.
static void a_report_outlives_the_weights(void **state) {
  (void)state;
  audit_request request = audit_dense_request(2);
  request.model.vocab_size = 20000;
  const audit_outcome s = run(&request, NULL);
  assert_int_equal(s.verdict, OT_VERDICT_CLEAN);
  const int64_t table_bytes = request.model.vocab_size * request.model.hidden_size * 4;
  assert_in_range(s.report_bytes, 1, table_bytes / 2);
}

static void decoding_equals_training_on_any_mesh_and_type(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request.tp = 2;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_dense_request(3);
  request.pp = 2;
  request.bf16 = true;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_dense_request(3);
  request.dp_shard = 2;
  request.zero = 3;
  request.fp64 = true;
  const audit_outcome s = run(&request, NULL);
  assert_int_equal(s.verdict, OT_VERDICT_CLEAN);
  assert_non_null(strstr(s.table, "exported"));
}

static void families_with_windows_and_norms_of_heads_are_clean(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  request.model = tiny_gemma();
  request.model.model_type = ot_family_name(OT_FAMILY_GEMMA3);
  request.model.architecture = ot_family_architecture(OT_FAMILY_GEMMA3);
  request.model.embedding_scale = ot_sqrt((double)request.model.hidden_size);
  request.model.vocab_size = 300;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request.model = tiny_gpt2();
  request.model.vocab_size = 300;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
}

// Soft caps, sinks, experts with biases, norms of whole rows, windows. The files of a family may
// not describe these models: then that is the only finding.
static void every_kind_of_attention_is_clean(void **state) {
  (void)state;
  static const rank_model_kind kinds[] = {RANK_GEMMA2, RANK_QWEN, RANK_OLMO, RANK_GPT_OSS};
  for (int i = 0; i < OT_COUNT(kinds); i++) {
    audit_request request = audit_dense_request(3);
    request.model = rank_model(kinds[i], 3, false);
    request.model.vocab_size = 300;
    if (kinds[i] == RANK_GPT_OSS) request.model.intermediate_size = request.model.moe.expert_size;
    request.fp64 = true;
    const audit_outcome s = run(&request, NULL);
    const bool only_export = s.num_findings == 1 && strcmp(s.what, "export") == 0;
    if (s.verdict != OT_VERDICT_CLEAN && !only_export) {
      fail_msg("%s: %s %s: %s", rank_model_name(kinds[i]), s.what, s.where, s.table);
    }
  }
}

// Decoding mixes the blocks of one token, training those of all tokens.
static void a_mix_of_blocks_is_clean(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  request.model.residuals = (ot_attention_residuals){3, 6, {0, 2, 4}};
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request.pp = 2;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
}

// This family has no key for a window: its files cannot describe it.
static void a_model_that_its_files_do_not_describe_is_found(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  for (int i = 0; i < 3; i++) request.model.window[i] = 5;
  const audit_outcome s = run(&request, NULL);
  assert_int_equal(s.num_findings, 1);
  assert_string_equal(s.what, "export");
}

static void other_epsilon(ot_model *model) { model->norm_epsilon *= 10; }
static void other_scale(ot_model *model) { model->attention_scale *= 1.01; }
static void other_theta(ot_model *model) { model->rope.theta *= 1.1; }
static void window_too_short(ot_model *model) { model->window[1] = 4; }

static void a_different_constant_is_found(void **state) {
  (void)state;
  void (*const amends[])(ot_model *) = {other_epsilon, other_scale, other_theta};
  for (int i = 0; i < OT_COUNT(amends); i++) {
    const audit_request request = audit_dense_request(3);
    const audit_outcome s = run(&request, amends[i]);
    assert_int_equal(s.verdict, OT_VERDICT_FINDING);
    assert_string_equal(s.what, "train_decode");
  }
}

static void a_model_that_is_served_otherwise_is_found(void **state) {
  (void)state;
  void (*const amends[])(ot_model *) = {other_epsilon, other_theta};
  for (int i = 0; i < 2 * OT_COUNT(amends); i++) {
    audit_request request = audit_dense_request(3);
    request.bf16 = i >= OT_COUNT(amends);
    const audit_outcome s =
        audit_run_one(&request, ot_audit_drift,
                      &(ot_audit_request){.amend_served = amends[i % OT_COUNT(amends)]});
    assert_int_equal(s.verdict, OT_VERDICT_FINDING);
    assert_string_equal(s.what, "train_serve");
    assert_non_null(strstr(s.table, "serving"));
  }
}

static void the_first_layer_that_differs_is_named(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  for (int i = 0; i < 3; i++) request.model.window[i] = 5;
  const audit_outcome s = run(&request, window_too_short);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.where, "layer 1 is the first that differs");
}

// Scales attention scores by 1 % more wherever several ranks run together.
static void scale_scores(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  for (int i = 0; i < schedule->num_segments; i++) {
    const ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; schedule->ranks > 1 && t < segment->num_tasks; t++) {
      ot_task *const task = &segment->tasks[t];
      const bool attends = task->op == OT_OP_ATTENTION || task->op == OT_OP_ATTENTION_BLOCK;
      if (attends) task->attributes.scale *= 1.01;
    }
  }
}

static void a_layout_with_different_results_is_found(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.amend = scale_scores};
  for (int cp = 1; cp <= 2; cp++) {
    audit_request request = audit_dense_request(3);
    request.model.initializer_range = 0.2;  // so that attention is not uniform
    request.cp = cp;
    request.tp = 3 - cp;
    assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
    request.hooks = &hooks;
    const audit_outcome s = run(&request, NULL);
    assert_int_equal(s.verdict, OT_VERDICT_FINDING);
    assert_string_equal(s.what, "layout");
    assert_string_equal(s.where, "the forward on 2 ranks");
  }
}

static void expert_parallelism_equals_one_rank(void **state) {
  (void)state;
  audit_request request = audit_moe_request(2, 4);
  request.model.moe.expert_size = request.model.intermediate_size;
  request.dp_shard = request.ep = 2;
  const audit_outcome s = run(&request, NULL);
  if (s.verdict != OT_VERDICT_CLEAN) fail_msg("%s: %s\n%s", s.what, s.where, s.table);
  assert_non_null(strstr(s.table, "the run's layout"));
}

static void one_token_a_sequence(ot_run *run, void *context) {
  (void)context;
  run->data.sequence_length = 1;
}

static void a_text_without_targets_is_inconclusive(void **state) {
  (void)state;
  audit_request request = audit_dense_request(2);
  request.settings = one_token_a_sequence;
  const audit_outcome s = run(&request, NULL);
  assert_int_equal(s.num_findings, 0);
  assert_int_equal(s.verdict, OT_VERDICT_INCONCLUSIVE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_report_outlives_the_weights),
      cmocka_unit_test(a_text_without_targets_is_inconclusive),
      cmocka_unit_test(a_layout_with_different_results_is_found),
      cmocka_unit_test(expert_parallelism_equals_one_rank),
      cmocka_unit_test(decoding_equals_training_on_any_mesh_and_type),
      cmocka_unit_test(families_with_windows_and_norms_of_heads_are_clean),
      cmocka_unit_test(every_kind_of_attention_is_clean),
      cmocka_unit_test(a_mix_of_blocks_is_clean),
      cmocka_unit_test(a_model_that_its_files_do_not_describe_is_found),
      cmocka_unit_test(a_different_constant_is_found),
      cmocka_unit_test(a_model_that_is_served_otherwise_is_found),
      cmocka_unit_test(the_first_layer_that_differs_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
