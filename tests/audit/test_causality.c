// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2,4 as threads. Dense models are bitwise causal. The audit finds documents that
// attend to each other, by the settings or by wrong document starts from the loader, and names the
// layer. It finds routing that depends on later tokens in single trials.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "audit/swap.h"
#include "ops/attention.h"
#include "support/audit_case.h"
#include "workspace/cpu_workspace.h"

enum { TRIALS = 8 };

static audit_outcome run_trials(const audit_request *request, int trials,
                                void (*amend)(ot_micro_batch *)) {
  const ot_audit_request how = {.trials = trials, .seed = 7, .amend_rows = amend};
  return audit_run_one(request, ot_audit_causality, &how);
}

static audit_outcome run(const audit_request *request, void (*amend)(ot_micro_batch *)) {
  return run_trials(request, TRIALS, amend);
}

static void dense_models_are_causal(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  for (int i = 0; i < 3; i++) request.model.window[i] = i == 1 ? 0 : 5;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_dense_request(3);
  request.bf16 = true;
  request.tp = 2;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request = audit_dense_request(3);
  request.model = tiny_gpt2();
  request.model.vocab_size = 300;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
}

static void a_backward_that_was_not_compared_is_not_clean(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.audit_bytes = 1};
  audit_request request = audit_dense_request(2);
  request.hooks = &hooks;
  const audit_outcome s = run(&request, NULL);
  assert_non_null(strstr(s.figures, "\"gradients\":{\"steps\":0"));
  assert_int_equal(s.num_findings, 0);
  assert_int_equal(s.verdict, OT_VERDICT_INCONCLUSIVE);
}

// Positions restart at documents, attention does not: a position reset is no mask.
static void no_mask(ot_micro_batch *rows) {
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->doc_starts[i] = 0;
}

// Each document sees the last token of the previous one.
static void one_too_early(ot_micro_batch *rows) {
  for (int64_t i = 0; i < rows->B * rows->T; i++) rows->doc_starts[i] -= rows->doc_starts[i] > 0;
}

static void documents_that_see_each_other_are_found(void **state) {
  (void)state;
  const audit_request request = audit_dense_request(3);
  audit_outcome s = run(&request, no_mask);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.what, "document_mask");
  assert_string_equal(s.where, "layer 0, attention");
}

// Number of tested losses with a forbidden gradient.
static int reached(const audit_outcome *s, const char *whom) {
  char key[64];
  snprintf(key, sizeof key, "\"reached_%s\":", whom);
  const char *const at = strstr(s->figures, key);
  if (!at) fail_msg("no %s in %s", key, s->figures);
  return atoi(at + strlen(key));
}

static void a_mask_that_leaks_also_lets_gradients_through(void **state) {
  (void)state;
  const audit_request request = audit_dense_request(3);
  const audit_outcome s = run(&request, no_mask);
  assert_int_equal(s.num_findings, 1);
  assert_true(reached(&s, "document") > 0);
  assert_int_equal(reached(&s, "future"), 0);
  assert_int_equal(reached(&s, "batch"), 0);
}

// The input of the head is then a stack of the outputs of all layers.
static void models_with_attention_residuals_are_looked_at(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  request.model.residuals.block_size = 2;
  request.model.residuals.sublayers = 2 * request.model.num_layers;
  for (int i = 0; i < request.model.num_layers; i++) request.model.residuals.place[i] = 2 * i;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request.pp = 2;
  request.batch = 4;
  const audit_outcome s = run(&request, no_mask);
  assert_string_equal(s.what, "document_mask");
  assert_string_equal(s.where, "layer 0, attention");
}

static void one_token_of_another_document_is_found(void **state) {
  (void)state;
  const audit_request request = audit_dense_request(3);
  const audit_outcome s = run(&request, one_too_early);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.what, "document_mask");
}

// ---- layouts ----

// Number of trials that reached other sequences.
static int reached_others(const audit_outcome *s) {
  static const char key[] = "\"leaked_to_other_sequences\":";
  int sum = 0;
  for (const char *at = strstr(s->figures, key); at; at = strstr(at + 1, key)) {
    sum += atoi(at + sizeof key - 1);
  }
  return sum;
}

static void ulysses(ot_run *run, void *context) {
  (void)context;
  run->parallel.context = OT_CONTEXT_ULYSSES;
}

static void layouts_are_causal(void **state) {
  (void)state;
  audit_request plain = audit_dense_request(3);
  plain.batch = 4;
  audit_request r[6] = {plain, plain, plain, plain, plain, plain};
  r[0].cp = 2;
  r[1].cp = 2;
  r[1].settings = ulysses;
  r[2].cp = r[2].tp = 2;
  r[3].pp = r[3].dp_shard = 2;
  r[3].zero = 3;
  r[4].tp = r[4].dp_replicate = 2;
  r[4].bf16 = true;
  r[5].pp = r[5].cp = 2;
  r[5].model = audit_model(2, true);
  for (int i = 0; i < OT_COUNT(r); i++) {
    const audit_outcome s = run(&r[i], NULL);
    if (s.verdict != OT_VERDICT_CLEAN)
      fail_msg("%s: %s %s", audit_describe(&r[i]), s.what, s.where);
  }
}

// A fault in the forward of all layers, on every rank.
static void edit_forward(ot_schedule *schedule, ot_op_kind op, void (*edit)(ot_task *task)) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; segment->phase == OT_PHASE_FORWARD && t < segment->num_tasks; t++) {
      if (segment->tasks[t].op == op) edit(&segment->tasks[t]);
    }
  }
}

static void take_keys_for_the_first(ot_task *task) { task->attributes.key_index = 0; }

// Every rank treats all keys as those of the first shard, which every token may see.
static void ring_mask(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  edit_forward(schedule, OT_OP_ATTENTION_BLOCK, take_keys_for_the_first);
}

// The workspace of two threads holds pairs of sequences for one. Where there is one sequence, the
// task stays.
static void join_sequences(ot_task *task) {
  ot_op_attributes *const a = &task->attributes;
  if (task->in[0].type.dim[0] < 2 * a->sequence_length) return;
  a->sequence_length *= 2;
  a->threads = 1;
  const ot_attention_layout layout = ot_attention_layout_of(OT_OP_ATTENTION, a, &task->in[0].type);
  if (layout.elements * ot_dtype_bytes(a->compute) > task->workspace_bytes) abort();
}

// Attention treats two sequences as one.
static void joined_sequences(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  edit_forward(schedule, OT_OP_ATTENTION, join_sequences);
}

static void take_pairs(ot_task *task) { task->attributes.sequence_length *= 2; }

static void edit_backward(ot_schedule *schedule, ot_op_kind op, void (*edit)(ot_task *task)) {
  for (int i = 0; i < schedule->num_segments; i++) {
    ot_segment *const segment = &schedule->segments[i];
    for (int t = 0; segment->phase != OT_PHASE_FORWARD && t < segment->num_tasks; t++) {
      if (segment->tasks[t].op == op) edit(&segment->tasks[t]);
    }
  }
}

// The batch stores positions just before document starts; they are smaller for later documents.
static void take_positions_for_starts(ot_task *task) {
  task->in[2].offset -= task->in[2].type.dim[0] * (int64_t)sizeof(int32_t);
}

// The forward masks documents, the backward lets some tokens see others.
static void unmasked_backward(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  edit_backward(schedule, OT_OP_ATTENTION_GRAD, take_positions_for_starts);
}

static void ring_mask_backward(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  edit_backward(schedule, OT_OP_ATTENTION_BLOCK_GRAD, take_keys_for_the_first);
}

static audit_outcome run_faulty(audit_request request,
                                void (*amend)(ot_schedule *, ot_arena *, void *)) {
  const ot_trainer_hooks hooks = {.amend = amend, .unchecked = true};
  request.hooks = &hooks;
  request.batch = 4;
  return run(&request, NULL);
}

static void backward_only_leaks_are_found(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  audit_outcome s = run_faulty(request, unmasked_backward);
  assert_string_equal(s.what, "document_mask");
  assert_string_equal(s.where, "layer 0, attention, backward");
  request.cp = 2;
  s = run_faulty(request, ring_mask_backward);
  assert_int_equal(s.verdict, OT_VERDICT_FINDING);
  assert_string_equal(s.where, "layer 0, attention, backward");
}

static void leaks_of_a_layout_are_found_with_their_layer(void **state) {
  (void)state;
  audit_request request = audit_dense_request(3);
  request.cp = 2;
  audit_outcome s = run_faulty(request, ring_mask);
  assert_string_equal(s.what, "attention_mask");
  assert_string_equal(s.where, "layer 0, attention");
  request = audit_dense_request(3);
  request.tp = 2;
  request.threads = 2;
  request.micro_batch = 2;
  s = run_faulty(request, joined_sequences);
  assert_string_equal(s.where, "layer 0, attention");
  assert_true(reached_others(&s) > 0);
}

// ---- experts ----

static audit_request experts(ot_moe_routing routing, double capacity) {
  audit_request request = audit_moe_request(2, 8);
  request.model.moe.routing = routing;
  request.model.moe.capacity_factor = capacity;
  return request;
}

enum { POWER_TRIALS = 40 };  // 38 of them are 95 %

// Number of POWER_TRIALS suffixes that changed an earlier output.
static int found(const audit_outcome *s, bool saturated) {
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

static audit_outcome run_experts(ot_moe_routing routing, double capacity) {
  const audit_request request = experts(routing, capacity);
  return run_trials(&request, POWER_TRIALS, NULL);
}

static void dropless_token_choice_is_causal(void **state) {
  (void)state;
  const audit_outcome s = run_experts(OT_MOE_DROPLESS, 1);
  assert_int_equal(s.verdict, OT_VERDICT_CLEAN);
  assert_int_equal(found(&s, false), 0);
}

static void expert_choice_is_found_in_nearly_every_single_trial(void **state) {
  (void)state;
  const audit_outcome s = run_experts(OT_MOE_EXPERT_CHOICE, 1);
  assert_string_equal(s.what, "expert_choice");
  assert_string_equal(s.where, "layer 0, MLP");
  assert_true(found(&s, false) >= 38);
  // A routing choice has no gradient: a gradient test cannot see it.
  assert_int_equal(reached(&s, "future"), 0);
}

static void experts_over_ranks_are_causal(void **state) {
  (void)state;
  audit_request request = experts(OT_MOE_DROPLESS, 1);
  request.ep = request.dp_shard = 2;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
  request.tp = 2;
  request.ep = 4;
  request.batch = 4;
  assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
}

static void experts_over_ranks_that_leak_are_found(void **state) {
  (void)state;
  audit_request request = experts(OT_MOE_EXPERT_CHOICE, 1);
  request.ep = request.dp_shard = 2;
  const audit_outcome s = run(&request, NULL);
  assert_string_equal(s.what, "expert_choice");
  assert_string_equal(s.where, "layer 0, MLP");
}

// Routing uses whole sequences even if tp and cp shard them.
static void leaks_of_sharded_sequences_are_found_as_on_one_rank(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    audit_request request = experts(OT_MOE_DROPLESS, 1);
    request.tp = i == 1 ? 1 : 2;
    request.cp = i == 0 ? 1 : 2;
    request.ep = i == 3 ? 4 : 1;
    assert_int_equal(run(&request, NULL).verdict, OT_VERDICT_CLEAN);
    request.model.moe.routing = OT_MOE_EXPERT_CHOICE;
    const audit_outcome s = run_trials(&request, POWER_TRIALS, NULL);
    assert_string_equal(s.what, "expert_choice");
    assert_string_equal(s.where, "layer 0, MLP");
    assert_true(found(&s, false) >= 38);
    // Tokens with lower positions are kept first, whichever rank holds them.
    request.model.moe.routing = OT_MOE_DROP_BY_POSITION;
    const audit_outcome other = run_trials(&request, POWER_TRIALS, NULL);
    assert_string_equal(other.what, "drop_by_position");
    assert_int_equal(found(&other, false), 0);
    assert_int_equal(found(&other, true), 0);
  }
}

// The two sequences of a rank share the capacity of an expert.
static void shared_capacity(ot_schedule *schedule, ot_arena *arena, void *context) {
  (void)arena;
  (void)context;
  edit_forward(schedule, OT_OP_ROUTE, take_pairs);
}

static void a_capacity_shared_by_sequences_is_found(void **state) {
  (void)state;
  audit_request request = experts(OT_MOE_DROP_BY_POSITION, 2);
  request.ep = request.dp_shard = 2;
  const audit_outcome sound = run(&request, NULL);
  assert_int_equal(reached_others(&sound), 0);
  const audit_outcome s = run_faulty(request, shared_capacity);
  assert_string_equal(s.what, "drop_by_position");
  assert_true(reached_others(&s) > 0);
}

// A capacity of three times the balanced load hides the leak unless the test forces overflow.
static void dropping_by_score_is_found_where_capacity_is_forced(void **state) {
  (void)state;
  const audit_outcome s = run_experts(OT_MOE_DROP_BY_SCORE, 3);
  assert_string_equal(s.what, "drop_by_score");
  assert_string_equal(s.where, "layer 0, MLP");
  assert_true(found(&s, false) < 20);
  assert_true(found(&s, true) >= 38);
}

// Earlier tokens are kept first: no future is seen, but other documents are.
static void dropping_by_position_sees_no_future(void **state) {
  (void)state;
  const audit_outcome s = run_experts(OT_MOE_DROP_BY_POSITION, 1);
  assert_string_equal(s.what, "drop_by_position");
  assert_int_equal(found(&s, false), 0);
  assert_int_equal(found(&s, true), 0);
}

static void a_sufficient_capacity_drops_nothing(void **state) {
  (void)state;
  assert_int_equal(run_experts(OT_MOE_DROP_BY_SCORE, 4).verdict, OT_VERDICT_CLEAN);
}

enum { SEQUENCES = 4 };

static void protected_positions_are_compared(void **state) {
  (void)state;
  ot_micro_batch rows;
  assert_int_equal(ot_micro_batch_create(SEQUENCES, 8, &rows), OT_OK);
  double changes[SEQUENCES * 8] = {0};
  const ot_swap swap = {.kind = OT_SWAP_SUFFIX, .sequence = 1, .first = 3, .last = 8};
  assert_int_equal(ot_swap_compare(&swap, &rows, changes).seen, 0);
  changes[8 + 5] = 1;  // after the position: may change
  assert_int_equal(ot_swap_compare(&swap, &rows, changes).seen, 1);
  assert_int_equal(ot_swap_compare(&swap, &rows, changes).own, 0);
  changes[8 + 2] = 1e-300;
  changes[3 * 8] = 2;
  const ot_swap_difference d = ot_swap_compare(&swap, &rows, changes);
  assert_int_equal(d.own, 1);
  assert_int_equal(d.own_protected, 3);
  assert_int_equal(d.others, 1);
  assert_int_equal(d.others_protected, 24);
  assert_int_equal(d.sequence, 1);
  assert_int_equal(d.position, 2);
  assert_true(d.largest == 2);
  ot_micro_batch_release(&rows);
}

static void a_swap_changes_exactly_the_listed_tokens(void **state) {
  (void)state;
  ot_micro_batch rows, changed;
  assert_int_equal(ot_micro_batch_create(SEQUENCES, 21, &rows), OT_OK);
  assert_int_equal(ot_micro_batch_create(SEQUENCES, 21, &changed), OT_OK);
  ot_swap_fill(1, 50, true, &rows);
  for (int kind = 0; kind < OT_SWAP_KINDS; kind++) {
    for (int trial = 0; trial < 20; trial++) {
      const ot_swap swap = ot_swap_choose(1, (ot_swap_kind)kind, trial, &rows);
      ot_swap_apply(&swap, 50, &rows, &changed);
      for (int64_t i = 0; i < SEQUENCES * 21; i++) {
        const bool inside = i / 21 == swap.sequence && i % 21 >= swap.first && i % 21 < swap.last;
        const bool other = kind == OT_SWAP_SEQUENCES && i / 21 != swap.sequence;
        assert_int_equal(changed.tokens[i] != rows.tokens[i], inside || other);
        assert_in_range(changed.tokens[i], 0, 49);
      }
    }
  }
  ot_micro_batch_release(&rows);
  ot_micro_batch_release(&changed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dense_models_are_causal),
      cmocka_unit_test(a_backward_that_was_not_compared_is_not_clean),
      cmocka_unit_test(documents_that_see_each_other_are_found),
      cmocka_unit_test(a_mask_that_leaks_also_lets_gradients_through),
      cmocka_unit_test(models_with_attention_residuals_are_looked_at),
      cmocka_unit_test(one_token_of_another_document_is_found),
      cmocka_unit_test(layouts_are_causal),
      cmocka_unit_test(backward_only_leaks_are_found),
      cmocka_unit_test(leaks_of_a_layout_are_found_with_their_layer),
      cmocka_unit_test(experts_over_ranks_are_causal),
      cmocka_unit_test(experts_over_ranks_that_leak_are_found),
      cmocka_unit_test(leaks_of_sharded_sequences_are_found_as_on_one_rank),
      cmocka_unit_test(a_capacity_shared_by_sequences_is_found),
      cmocka_unit_test(dropless_token_choice_is_causal),
      cmocka_unit_test(expert_choice_is_found_in_nearly_every_single_trial),
      cmocka_unit_test(dropping_by_score_is_found_where_capacity_is_forced),
      cmocka_unit_test(dropping_by_position_sees_no_future),
      cmocka_unit_test(a_sufficient_capacity_drops_nothing),
      cmocka_unit_test(protected_positions_are_compared),
      cmocka_unit_test(a_swap_changes_exactly_the_listed_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
