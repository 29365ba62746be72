// SPDX-License-Identifier: Apache-2.0
// run: ranks=1..4 as threads. Step audit: correct runs of every precision are clean and every part
// of the step is examined, by the judge or, where that is not possible, in samples; a single wrong
// number is named; no file remains.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit/audit.h"
#include "support/audit_case.h"
#include "support/scratch.h"

static char folder[SCRATCH_BYTES];  // for temporary files

static ot_status audit(audit_rank *rank) {
  audit_outcome *const s = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report;
  ot_step_report step;
  const ot_audit_request request = {.trainer = rank->trainer};
  ot_status status = audit_step(rank, &step);
  if (status == OT_OK) status = ot_audit_step(&request, &arena, &report);
  if (status == OT_OK && ot_world_is_leader(rank->world)) audit_copy_report(&report, s);
  ot_heap_release(&heap);
  return status;
}

static audit_outcome run(const audit_request *request) {
  audit_outcome s = {0};
  if (audit_run(request, audit, &s) != OT_OK) fail_msg("%s", ot_fail_message());
  return s;
}

static audit_request plain(void) {
  return (audit_request){
      .batch = 4, .micro_batch = 1, .model = audit_model(2, false), .documents = true};
}

static void keep_gradients_narrow(ot_run *run, void *context) {
  (void)context;
  run->precision.gradients = OT_BF16;
}

static void keep_moments_narrow(ot_run *run, void *context) {
  (void)context;
  run->precision.moments = OT_BF16;
}

static void correct_steps_are_examined_and_clean(void **state) {
  (void)state;
  for (int precision = 0; precision < 5; precision++) {
    audit_request request = plain();
    request.fp64 = precision == 1;
    request.bf16 = precision >= 2;
    request.tp = precision >= 2 ? 1 : 2;
    if (precision == 3) request.settings = keep_gradients_narrow;
    if (precision == 4) request.settings = keep_moments_narrow;
    request.dp_shard = 2;
    request.zero = 1;
    const audit_outcome s = run(&request);
    if (s.num_findings > 0) fail_msg("%s: %s", s.what, s.where);
    const bool judged = precision != 3;
    if (judged) assert_int_equal(s.verdict, OT_VERDICT_CLEAN);
    // The trainer joins tensors: two layers of nine of a checkpoint or six, embedding, norm, head.
    const char *const compared = judged ? "\"gradients_compared\":21" : "\"slopes_compared\":15";
    if (!strstr(s.figures, compared)) fail_msg("%d: %s", precision, s.figures);
    // Weights that are stored in fewer bits than their masters are compared by elements, too.
    assert_true(!strstr(s.figures, "\"updates_compared\":0") == (precision >= 2));
  }
}

// On one rank.
static ot_status audit_without_folder(audit_rank *rank) {
  setenv("TMPDIR", scratch_path(folder, "absent"), 1);
  const ot_status status = audit(rank);
  setenv("TMPDIR", folder, 1);
  return status;
}

static void a_step_that_cannot_be_recorded_is_inconclusive(void **state) {
  (void)state;
  const audit_request request = plain();
  audit_outcome s = {0};
  if (audit_run(&request, audit_without_folder, &s) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(s.num_findings, 0);
  assert_int_equal(s.verdict, OT_VERDICT_INCONCLUSIVE);
  assert_non_null(strstr(s.summary, "the step was not recorded"));
  // The other checks replace the judge.
  assert_non_null(strstr(s.figures, "\"slopes_compared\":15"));
  assert_null(strstr(s.figures, "\"updates_compared\":0"));
}

// A model with load-balancing losses, on one rank.
static audit_request balanced(void) {
  audit_request request = audit_moe_request(2, 4);
  request.batch = 4;
  request.documents = true;
  request.model.moe.balance = OT_MOE_BALANCE_AUX_LOSS;
  request.model.moe.aux_coefficient = 0.02;
  request.model.moe.z_coefficient = 1e-3;
  return request;
}

static void slopes_of_a_model_with_balanced_experts_are_compared(void **state) {
  (void)state;
  for (int fp64 = 0; fp64 < 2; fp64++) {
    audit_request request = balanced();
    request.fp64 = fp64 == 1;
    const audit_outcome s = run(&request);
    if (s.num_findings > 0) fail_msg("%s: %s", s.what, s.where);
    if (s.verdict != OT_VERDICT_CLEAN) fail_msg("%s", s.summary);
    // Two layers of seven tensors, embedding, norm and head.
    if (!strstr(s.figures, "\"slopes_compared\":17")) fail_msg("%s", s.figures);
    if (!strstr(s.figures, "\"judged\":true")) fail_msg("%s", s.figures);
  }
}

// In the backward only.
static void double_balance(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; t < segment->num_tasks; t++) {
      if (segment->tasks[t].op != OT_OP_ROUTE_LOSS_GRAD) continue;
      segment->tasks[t].attributes.aux_coefficient *= 2;
    }
  }
}

static void a_balance_loss_whose_gradient_has_another_weight_is_found(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.amend = double_balance};
  audit_request request = balanced();
  request.fp64 = true;
  request.hooks = &hooks;
  const audit_outcome s = run(&request);
  assert_string_equal(s.what, "balance_loss");
}

// A model whose loads move biases of its routers.
static audit_request biased(void) {
  audit_request request = balanced();
  request.model.moe.balance = OT_MOE_BALANCE_BIAS;
  request.model.moe.aux_coefficient = request.model.moe.z_coefficient = 0;
  request.model.moe.bias_rate = 0.01;
  return request;
}

// By the factor in `context`.
static void change_bias_rates(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; t < segment->num_tasks; t++) {
      if (segment->tasks[t].op != OT_OP_ROUTE_BIAS) continue;
      segment->tasks[t].attributes.bias_rate *= *(const double *)context;
    }
  }
}

static void biases_of_routers_move_against_the_loads(void **state) {
  (void)state;
  static double factors[] = {1, 2, -1};
  for (int i = 0; i < 3; i++) {
    const ot_trainer_hooks hooks = {.amend = change_bias_rates, .context = &factors[i]};
    audit_request request = biased();
    request.hooks = &hooks;
    const audit_outcome s = run(&request);
    if (i == 0 && s.verdict != OT_VERDICT_CLEAN) fail_msg("%s: %s", s.what, s.summary);
    if (i > 0) assert_string_equal(s.what, "router_bias");
  }
}

static void a_step_without_slopes_is_inconclusive(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.audit_bytes = 1};
  audit_request request = plain();
  request.hooks = &hooks;
  const audit_outcome s = run(&request);
  assert_int_equal(s.num_findings, 0);
  assert_non_null(strstr(s.summary, "the step was not judged: the model and the batch"));
  assert_non_null(strstr(s.figures, "\"slopes_compared\":0"));
  assert_int_equal(s.verdict, OT_VERDICT_INCONCLUSIVE);
}

static void corrections_of_another_step(ot_trainer *trainer, void *context) {
  (void)context;
  ot_executor_set_scalar(ot_runtime_executor(ot_trainer_runtime(trainer)), OT_SCALAR_CORRECTION_1,
                         5.0);
}

static void a_bias_correction_that_is_off_is_found(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.before = corrections_of_another_step};
  audit_request request = plain();
  request.hooks = &hooks;
  const audit_outcome s = run(&request);
  assert_string_equal(s.what, "update_rate");
  assert_non_null(strstr(s.where, "model.embed_tokens.weight"));
}

// Masks the last but one token of the first sequence.
static void mask_one_target(const ot_trainer *trainer, int micro_batch, ot_micro_batch *rows,
                            void *context) {
  (void)trainer;
  (void)context;
  const int64_t at = rows->T - 2;
  if (micro_batch > 0 || rows->targets[at] < 0) return;
  rows->targets[at] = -1;
  rows->num_targets--;
}

static void one_target_that_is_masked_is_found(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.rows = mask_one_target};
  audit_request request = plain();
  request.documents = false;
  request.hooks = &hooks;
  const audit_outcome s = run(&request);
  assert_string_equal(s.what, "target_mask");
}

// ---- files ----

static int open_folder(void **state) {
  (void)state;
  scratch_create(folder);
  return setenv("TMPDIR", folder, 1);
}

// Each test leaves the folder for temporary files empty.
static int close_folder(void **state) {
  (void)state;
  const int left = rmdir(folder);
  scratch_destroy(folder);
  return left;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(correct_steps_are_examined_and_clean),
      cmocka_unit_test(a_step_that_cannot_be_recorded_is_inconclusive),
      cmocka_unit_test(slopes_of_a_model_with_balanced_experts_are_compared),
      cmocka_unit_test(a_balance_loss_whose_gradient_has_another_weight_is_found),
      cmocka_unit_test(biases_of_routers_move_against_the_loads),
      cmocka_unit_test(a_step_without_slopes_is_inconclusive),
      cmocka_unit_test(a_bias_correction_that_is_off_is_found),
      cmocka_unit_test(one_target_that_is_masked_is_found),
  };
  return cmocka_run_group_tests(tests, open_folder, close_folder);
}
