// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2 as threads. Dense models are causal, bit for bit; documents that see each other,
// by the settings or by a loader that marks their beginnings wrongly, are found, with the layer; so
// is routing that lets tokens depend on later ones, in single trials.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "audit/causality.h"
#include "audit/swap.h"
#include "device/heap.h"
#include "support/audit_case.h"

enum { TRIALS = 8 };

// A question, and what was said to it.
typedef struct looked {
  void (*amend)(ot_rows *rows);
  int trials;
  audit_said said;
} looked;

static ot_status audit(audit_rank *rank) {
  looked *const l = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report;
  const ot_causality_request request = {.trainer = rank->trainer,
                                        .team = rank->team,
                                        .trials = l->trials,
                                        .seed = 7,
                                        .amend = l->amend};
  const ot_status status = ot_audit_causality(&request, &arena, &report);
  if (status == OT_OK && ot_team_leads(rank->team)) audit_hear(&report, &l->said);
  ot_heap_release(&heap);
  return status;
}

static audit_said run_trials(const audit_request *request, int trials, void (*amend)(ot_rows *)) {
  looked l = {.amend = amend, .trials = trials};
  if (audit_run(request, audit, &l) != OT_OK) fail_msg("%s", ot_fail_message());
  return l.said;
}

static audit_said run(const audit_request *request, void (*amend)(ot_rows *)) {
  return run_trials(request, TRIALS, amend);
}

static void dense_models_are_causal(void **state) {
  (void)state;
  audit_request request = audit_plain(3);
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  for (int i = 0; i < 3; i++) request.model.window[i] = i == 1 ? 0 : 5;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_plain(3);
  request.bf16 = true;
  request.tp = 2;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_plain(3);
  request.model = tiny_gpt2();
  request.model.vocab_size = 300;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
}

// Positions begin anew, attention does not: what resets positions is not a mask.
static void no_mask(ot_rows *rows) {
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->doc_starts[i] = 0;
}

// Each document sees the last token of the one before.
static void one_too_early(ot_rows *rows) {
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->doc_starts[i] -= rows->doc_starts[i] > 0;
}

static void documents_that_see_each_other_are_found(void **state) {
  (void)state;
  const audit_request request = audit_plain(3);
  audit_said s = run(&request, no_mask);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.what, "document_mask");
  assert_string_equal(s.where, "layer 0, attention");
}

static void one_token_of_another_document_is_found(void **state) {
  (void)state;
  const audit_request request = audit_plain(3);
  const audit_said s = run(&request, one_too_early);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.what, "document_mask");
}

// ---- experts ----

static audit_request experts(ot_moe_routing routing, double capacity) {
  audit_request request = audit_plain(3);
  ot_model *const model = &request.model;
  model->family = OT_FAMILY_MIXTRAL;
  model->model_type = ot_family_name(OT_FAMILY_MIXTRAL);
  model->architecture = ot_family_architecture(OT_FAMILY_MIXTRAL);
  model->num_layers = 2;
  model->moe = (ot_moe){.num_experts = 8,
                        .experts_per_token = 2,
                        .expert_size = 24,
                        .layer = {true, true},
                        .renormalise = true,
                        .scale = 1,
                        .num_groups = 1,
                        .groups_per_token = 1,
                        .routing = routing,
                        .capacity_factor = capacity};
  return request;
}

enum { POWER_TRIALS = 40 };  // of which 38 are 95 %

// Of POWER_TRIALS suffixes, how many changed what comes before them.
static int found(const audit_said *s, bool saturated) {
  char part[128];
  snprintf(part, sizeof part, "\"suffix\",\"at_a_quarter_of_the_capacity\":%s,",
           saturated ? "true" : "false");
  const char *const at = strstr(s->figures, part);
  int trials = 0, own = -1;
  if (!at) fail_msg("no %s in %s", part, s->figures);
  sscanf(at + strlen(part), "\"trials\":%d,\"leaked_within_the_sequence\":%d", &trials, &own);
  assert_int_equal(trials, POWER_TRIALS);
  return own;
}

static audit_said run_experts(ot_moe_routing routing, double capacity) {
  const audit_request request = experts(routing, capacity);
  return run_trials(&request, POWER_TRIALS, NULL);
}

static void dropless_token_choice_is_causal(void **state) {
  (void)state;
  const audit_said s = run_experts(OT_MOE_DROPLESS, 1);
  assert_int_equal(s.verdict, OT_VERDICT_CLEAN);
  assert_int_equal(found(&s, false), 0);
}

static void expert_choice_is_found_in_nearly_every_single_trial(void **state) {
  (void)state;
  const audit_said s = run_experts(OT_MOE_EXPERT_CHOICE, 1);
  assert_string_equal(s.what, "expert_choice");
  assert_string_equal(s.where, "layer 0, MLP");
  assert_true(found(&s, false) >= 38);
}

// A capacity of three even shares hides the leak from a test that does not force it.
static void dropping_by_score_is_found_where_capacity_is_forced(void **state) {
  (void)state;
  const audit_said s = run_experts(OT_MOE_DROP_BY_SCORE, 3);
  assert_string_equal(s.what, "drop_by_score");
  assert_true(found(&s, false) < 20);
  assert_true(found(&s, true) >= 38);
}

// What comes first in a sequence is taken first: no future, but other documents.
static void dropping_by_position_sees_no_future(void **state) {
  (void)state;
  const audit_said s = run_experts(OT_MOE_DROP_BY_POSITION, 1);
  assert_string_equal(s.what, "drop_by_position");
  assert_int_equal(found(&s, false), 0);
  assert_int_equal(found(&s, true), 0);
}

static void a_capacity_that_holds_all_drops_nothing(void **state) {
  (void)state;
  assert_int_equal(run_experts(OT_MOE_DROP_BY_SCORE, 4).verdict, OT_VERDICT_CLEAN);
}

static void what_is_protected_is_compared_bit_by_bit(void **state) {
  (void)state;
  ot_rows rows;
  assert_int_equal(ot_rows_create(OT_SWAP_SEQUENCES_COUNT, 8, &rows), OT_OK);
  double before[OT_SWAP_SEQUENCES_COUNT * 8 * 2] = {0},
                                              after[OT_SWAP_SEQUENCES_COUNT * 8 * 2] = {0};
  const ot_swap swap = {.kind = OT_SWAP_SUFFIX, .sequence = 1, .first = 3, .last = 8};
  after[2 * (8 + 5)] = 1;  // behind the place: free to change
  assert_int_equal(ot_swap_compare(&swap, &rows, 2, before, after).own, 0);
  after[2 * (8 + 2) + 1] = 1e-300;
  after[2 * (3 * 8)] = -2;
  const ot_swap_difference d = ot_swap_compare(&swap, &rows, 2, before, after);
  assert_int_equal(d.own, 1);
  assert_int_equal(d.own_protected, 3);
  assert_int_equal(d.others, 1);
  assert_int_equal(d.others_protected, 24);
  assert_int_equal(d.sequence, 1);
  assert_int_equal(d.position, 2);
  assert_true(d.largest == 2);
  ot_rows_release(&rows);
}

static void a_swap_changes_every_token_that_it_says_and_no_other(void **state) {
  (void)state;
  ot_rows rows, changed;
  assert_int_equal(ot_rows_create(OT_SWAP_SEQUENCES_COUNT, 21, &rows), OT_OK);
  assert_int_equal(ot_rows_create(OT_SWAP_SEQUENCES_COUNT, 21, &changed), OT_OK);
  ot_swap_fill(1, 50, true, &rows);
  for (int kind = 0; kind < OT_SWAP_KINDS; kind++) {
    for (int trial = 0; trial < 20; trial++) {
      const ot_swap swap = ot_swap_choose(1, (ot_swap_kind)kind, trial, 21);
      ot_swap_apply(&swap, 50, &rows, &changed);
      for (int64_t i = 0; i < OT_SWAP_SEQUENCES_COUNT * 21; i++) {
        const bool inside = i / 21 == swap.sequence && i % 21 >= swap.first && i % 21 < swap.last;
        const bool other = kind == OT_SWAP_SEQUENCES && i / 21 != swap.sequence;
        assert_int_equal(changed.tokens[i] != rows.tokens[i], inside || other);
        assert_in_range(changed.tokens[i], 0, 49);
      }
    }
  }
  ot_rows_release(&rows);
  ot_rows_release(&changed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense_models_are_causal),
      cmocka_unit_test(documents_that_see_each_other_are_found),
      cmocka_unit_test(one_token_of_another_document_is_found),
      cmocka_unit_test(dropless_token_choice_is_causal),
      cmocka_unit_test(expert_choice_is_found_in_nearly_every_single_trial),
      cmocka_unit_test(dropping_by_score_is_found_where_capacity_is_forced),
      cmocka_unit_test(dropping_by_position_sees_no_future),
      cmocka_unit_test(a_capacity_that_holds_all_drops_nothing),
      cmocka_unit_test(what_is_protected_is_compared_bit_by_bit),
      cmocka_unit_test(a_swap_changes_every_token_that_it_says_and_no_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
