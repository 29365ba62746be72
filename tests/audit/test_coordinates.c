// SPDX-License-Identifier: Apache-2.0
// run: any machine; all cases with OT_TESTS=full. Coordinate check: clean with mup; found are the
// standard parametrization, a head with its learning rate, layers without their factor, and
// attention scores over the root of head_dim.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/audit_case.h"

typedef struct found {
  ot_audit_request how;
  ot_verdict verdict;
  char findings[1024];  // "WHAT WHERE; ..."
} found;

static ot_status audit(audit_rank *rank) {
  found *const f = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report;
  ot_audit_request request = f->how;  // ranks are threads, which share `f`
  request.trainer = rank->trainer;
  const ot_status status = ot_audit_coordinates(&request, &arena, &report);
  if (status == OT_OK && rank->rank == 0) {
    int64_t length = 0;
    f->verdict = report.verdict;
    for (int i = 0; i < report.num_findings; i++) {
      length += ot_text_format(f->findings + length, sizeof f->findings - length, "%s %s; ",
                               report.findings[i].what, report.findings[i].where);
    }
    printf("%s%s\n", report.table, f->findings);
  }
  ot_heap_release(&heap);
  return status;
}

static void use_standard(ot_run *run, void *context) {
  (void)context;
  run->optimizer.lr = 5e-3;
}

static void use_mup(ot_run *run, void *context) {
  (void)context;
  run->optimizer.lr = 5e-3;
  run->parametrization = (ot_parametrization){
      .name = OT_PARAMETRIZATION_MUP, .base_hidden_size = 16, .base_layers = 1, .depth_alpha = 1};
}

static void use_mup_for_heads(ot_run *run, void *context) {
  use_mup(run, context);
  run->optimizer.lr = 1e-3;
  run->parametrization.base_head_dim = 4;
  run->parametrization.base_layers = 0;
}

static found find_in(const ot_model *model, void (*settings)(ot_run *run, void *context),
                     void (*amend)(ot_run *run)) {
  const audit_request request = {
      .batch = 8, .micro_batch = 1, .dp_shard = 2, .model = *model, .settings = settings};
  found f = {.how = {.amend_run = amend}};
  if (audit_run(&request, audit, &f) != OT_OK) fail_msg("%s", ot_fail_message());
  return f;
}

static found find(void (*settings)(ot_run *run, void *context), void (*amend)(ot_run *run)) {
  const ot_model model = audit_model(2, false);
  return find_in(&model, settings, amend);
}

static void expect(const found *f, const char *finding) {
  if (!ot_text_find(f->findings, finding)) fail_msg("no %s in: %s", finding, f->findings);
}

static void mup_is_clean(void **state) {
  (void)state;
  const found f = find(use_mup, NULL);
  assert_string_equal(f.findings, "");
  assert_int_equal(f.verdict, OT_VERDICT_CLEAN);
}

static void every_kind_of_model_is_clean(void **state) {
  (void)state;
  if (!getenv("OT_TESTS")) skip();  // half a minute
  const ot_model llama = tiny_llama();
  ot_model models[] = {tiny_gpt2(), tiny_gemma(), tiny_experts(&llama, false)};
  for (int i = 0; i < OT_COUNT(models); i++) {
    models[i].vocab_size = 300;
    const found f = find_in(&models[i], use_mup, NULL);
    if (f.findings[0]) fail_msg("%s: %s", models[i].model_type, f.findings);
  }
}

static void standard_grows_with_width_and_depth(void **state) {
  (void)state;
  const found f = find(use_standard, NULL);
  expect(&f, "stream_change width");
  expect(&f, "logits_change width");
  expect(&f, "stream_change layers");
}

// The head moves as much at every width, and layers have no factor.
static void forget(ot_run *run) {
  static ot_optimizer_group head;
  head = (ot_optimizer_group){
      .pattern = "lm_head*",
      .lr_factor = (double)run->model.hidden_size / (double)run->parametrization.base_hidden_size,
      .lr = -1,
      .weight_decay = -1};
  run->optimizer.groups = &head;
  run->optimizer.num_groups = 1;
  run->parametrization.base_layers = 0;
}

static void wrong_rules_of_the_head_and_of_depth_are_found(void **state) {
  (void)state;
  const found f = find(use_mup, forget);
  assert_true(ot_text_starts_with(f.findings, "logits width; logits_change width; stream layers"));
}

static void keep_the_root(ot_run *run) { run->parametrization.base_head_dim = 0; }

static void scores_over_the_root_of_head_dim_are_found(void **state) {
  (void)state;
  if (!getenv("OT_TESTS")) skip();  // these need four times as many steps
  const found clean = find(use_mup_for_heads, NULL);
  assert_string_equal(clean.findings, "");
  const found f = find(use_mup_for_heads, keep_the_root);
  assert_string_equal(f.findings, "scores head_dim; ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mup_is_clean),
      cmocka_unit_test(every_kind_of_model_is_clean),
      cmocka_unit_test(standard_grows_with_width_and_depth),
      cmocka_unit_test(wrong_rules_of_the_head_and_of_depth_are_found),
      cmocka_unit_test(scores_over_the_root_of_head_dim_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
