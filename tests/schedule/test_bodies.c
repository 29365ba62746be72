// SPDX-License-Identifier: Apache-2.0
// run: any machine. Loop bodies from program to schedule: storage of their values, in-place ops,
// waits. The check replays two iterations, and the resulting schedule runs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/program_check.h"
#include "schedule/bodies.h"
#include "schedule/schedule_match.h"
#include "support/body_case.h"

static void begin(body_case *c, int ranks) {
  body_case_begin(c, 0, ranks);
  body_case_lower(c);
}

// For tests that modify the lowered schedule.
static ot_task *task_of(const body_case *c, ot_op_kind kind, int number) {
  return (ot_task *)body_case_task(c, kind, number);
}

static int index_of(const body_case *c, const ot_task *task) {
  return (int)(task - c->segments[1].tasks);
}

static void expect_good(body_case *c) {
  if (ot_schedule_check(&c->schedule, &c->arena) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void expect_refused(body_case *c, const char *why) {
  assert_int_equal(ot_schedule_check(&c->schedule, &c->arena), OT_BUG);
  if (!strstr(ot_fail_message(), why)) fail_msg("%s", ot_fail_message());
}

static bool overlap(const ot_operand *a, const ot_operand *b) {
  if (a->base != b->base) return false;
  const int64_t a_end = a->offset + ot_type_bytes(&a->type);
  const int64_t b_end = b->offset + ot_type_bytes(&b->type);
  return a->offset < b_end && b->offset < a_end;
}

static bool same_place(const ot_operand *a, const ot_operand *b) {
  return a->base == b->base && a->offset == b->offset;
}

// ---- execution ----

static void play_everywhere(int rounds) {
  for (int ranks = 1; ranks <= BODY_MAX_RANKS; ranks++) {
    for (int mode = 0; mode < 3; mode++) {
      body_run game = {.ranks = ranks, .rounds = rounds, .overlap = mode == 0, .poison = mode == 2};
      body_run_schedules(&game);
      body_run_expect(&game);
    }
  }
}

static void bodies_accumulate_over_their_iterations(void **state) {
  (void)state;
  static const int numbers[] = {0, 1, 2, 4, 9};
  for (int i = 0; i < OT_COUNT(numbers); i++) play_everywhere(numbers[i]);
}

// ---- storage ----

// Only the first op of the body reads h, and that of the next iteration reads it again.
static void live_ins_of_a_body_stay_live_to_its_end(void **state) {
  (void)state;
  for (int ranks = 1; ranks <= 2; ranks++) {
    body_case c;
    begin(&c, ranks);
    expect_good(&c);
    const ot_segment *const segment = &c.segments[1];
    const ot_operand h = task_of(&c, OT_OP_ADD, 0)->out[0];
    const int repeat = index_of(&c, task_of(&c, OT_OP_REPEAT, 0));
    for (int i = repeat; i < segment->num_tasks - 1; i++) {
      const ot_task *const task = &segment->tasks[i];
      for (int k = 0; k < OT_MAX_OUTPUTS; k++) assert_false(overlap(&task->out[k], &h));
      assert_true(task->workspace_bytes == 0 ||
                  h.offset + ot_type_bytes(&h.type) <= task->workspace ||
                  task->workspace + task->workspace_bytes <= h.offset);
    }
    body_case_destroy(&c);
  }
}

static void loop_carried_values_are_updated_in_place(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  ot_task *const repeat = task_of(&c, OT_OP_REPEAT, 0);
  assert_true(same_place(&repeat->in[0], &repeat->out[0]));
  assert_int_equal(repeat->kind, OT_TASK_REPEAT);
  assert_int_equal(repeat->lane, OT_LANE_COMPUTE);
  body_case_destroy(&c);
  // Not possible if a task after the loop reads the loop-carried value.
  body_case_begin(&c, 0, 1);
  c.program.ops[c.program.num_ops - 1].in[1] = BODY_A0;
  body_case_lower(&c);
  expect_refused(&c, "needs operand 0 in place");
  body_case_destroy(&c);
}

// t has no reader after the all-reduce; u is computed during the all-reduce.
static void a_collective_works_in_place_without_other_readers(void **state) {
  (void)state;
  body_case c;
  begin(&c, 2);
  const ot_task *const sum = task_of(&c, OT_OP_ALL_REDUCE, 0);
  const ot_task *const u = task_of(&c, OT_OP_ADD, 2);
  assert_int_equal(u->out[0].value, BODY_U);
  assert_true(same_place(&sum->in[0], &sum->out[0]));
  assert_false(overlap(&u->out[0], &sum->out[0]));
  assert_int_equal(task_of(&c, OT_OP_ADD, 3)->wait, index_of(&c, sum));
  expect_good(&c);
  body_case_destroy(&c);
  // A concurrent kernel that reads t keeps them apart; so does the all-reduce's own reader.
  for (int reader = 2; reader <= 3; reader++) {
    body_case_begin(&c, 0, 2);
    c.program.ops[c.repeat + 1 + reader].in[1] = BODY_T;
    body_case_lower(&c);
    const ot_task *const apart = task_of(&c, OT_OP_ALL_REDUCE, 0);
    assert_false(overlap(&apart->in[0], &apart->out[0]));
    expect_good(&c);
    body_case_destroy(&c);
  }
}

// No op may overwrite h, not even the last op of the body: the next iteration reads it.
static void no_op_of_a_body_overwrites_its_live_ins(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  ot_op *const ops = c.program.ops;
  const int last = c.repeat + ops[c.repeat].attributes.repeated;
  const ot_op moved = {.kind = OT_OP_ADD,
                       .attributes = ops[0].attributes,
                       .in = {BODY_H, BODY_X, -1, -1, -1, -1, -1, -1, -1, -1},
                       .out = {BODY_S, -1, -1, -1, -1}};
  ops[last] = moved;
  body_case_lower(&c);
  assert_false(overlap(&task_of(&c, OT_OP_ADD, 4)->out[0], &task_of(&c, OT_OP_ADD, 0)->out[0]));
  assert_int_equal(task_of(&c, OT_OP_ADD, 4)->out[0].value, BODY_S);
  body_case_destroy(&c);
}

static void ops_are_not_moved_into_or_across_bodies(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 2);
  ot_op last = c.program.ops[c.repeat + 2];
  assert_int_equal(last.kind, OT_OP_ALL_REDUCE);
  last.in[0] = BODY_X;  // defined before the program
  last.out[0] = BODY_B;
  c.program.values[BODY_B].type = c.program.values[BODY_X].type;
  ot_program_add_op(&c.program, &c.arena, &last);
  const ot_op t = c.program.ops[c.repeat + 1];
  c.program.ops[c.repeat + 1] = c.program.ops[c.repeat + 2];
  c.program.ops[c.repeat + 1].in[0] = BODY_X;
  c.program.ops[c.repeat + 2] = t;
  body_case_lower(&c);
  const ot_segment *const segment = &c.segments[1];
  const int repeat = index_of(&c, task_of(&c, OT_OP_REPEAT, 0));
  assert_int_equal(repeat, c.repeat);
  for (int i = 0; i <= segment->tasks[repeat].attributes.repeated; i++) {
    assert_int_equal(segment->tasks[repeat + i].out[0].value, c.program.ops[repeat + i].out[0]);
    assert_int_equal(ot_segment_repeat_of(segment, repeat + i), i == 0 ? -1 : repeat);
  }
  assert_int_equal(segment->tasks[segment->num_tasks - 2].out[0].value, BODY_B);
  assert_int_equal(ot_segment_repeat_of(segment, segment->num_tasks - 2), -1);
  body_case_destroy(&c);
}

// s has no reader: its all-reduce may run until the end of the iteration, not longer.
static void a_collective_ends_with_its_iteration(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 2);
  c.program.ops[c.repeat + 4].in[0] = BODY_T;
  body_case_lower(&c);
  const int last = c.repeat + c.program.ops[c.repeat].attributes.repeated;
  assert_int_equal(c.storage.runs[c.repeat + 2].op, c.repeat + 2);
  assert_int_equal(c.storage.runs[c.repeat + 2].end, last);
  assert_true(last < c.storage.num_runs - 1);
  expect_good(&c);
  body_case_destroy(&c);
  // So values after the body may reuse its memory.
  body_case_begin(&c, 0, 2);
  c.program.ops[c.repeat + 4].in[0] = BODY_T;
  c.program.values[BODY_B].type = c.program.values[BODY_X].type;
  ot_op behind = c.program.ops[0];
  behind.out[0] = BODY_B;
  ot_program_add_op(&c.program, &c.arena, &behind);
  body_case_lower(&c);
  ot_operand *const made = &c.segments[1].tasks[c.segments[1].num_tasks - 1].out[0];
  assert_int_equal(made->value, BODY_B);
  made->offset = task_of(&c, OT_OP_ALL_REDUCE, 0)->out[0].offset;
  expect_good(&c);
  body_case_destroy(&c);
}

static bool places_overlap(const body_case *c, int a, int b) {
  const ot_place x = ot_storage_place(&c->storage, a, OT_SIDE_BACKWARD);
  const ot_place y = ot_storage_place(&c->storage, b, OT_SIDE_BACKWARD);
  const int64_t x_end = x.offset + ot_type_bytes(&c->program.values[a].type);
  const int64_t y_end = y.offset + ot_type_bytes(&c->program.values[b].type);
  return x.base == y.base && x.offset < y_end && y.offset < x_end;
}

// A body of input gradients, with weight gradients before and after it.
static void backward_bodies_follow_the_same_rules(void **state) {
  (void)state;
  for (int split = 0; split < 2; split++) {
    body_case c;
    body_case_begin(&c, 0, 2);
    const int last = c.program.num_ops - 1;
    for (int i = 0; i <= last; i++) c.program.ops[i].part = OT_PART_INPUT;
    c.program.ops[2].part = c.program.ops[last].part = OT_PART_WEIGHT;
    ot_storage_build(&(ot_storage_request){.program = &c.program, .split = split == 1}, &c.arena,
                     &c.storage);
    const int repeat = split == 1 ? c.repeat - 1 : c.repeat;
    for (int i = 0; i <= c.program.ops[c.repeat].attributes.repeated; i++) {
      assert_int_equal(c.storage.runs[repeat + i].op, c.repeat + i);
      assert_int_equal(c.storage.runs[repeat + i].phase,
                       split == 1 ? OT_PHASE_INPUT : OT_PHASE_BACKWARD);
    }
    assert_false(places_overlap(&c, BODY_H, BODY_T) || places_overlap(&c, BODY_H, BODY_U));
    assert_false(places_overlap(&c, BODY_H, BODY_T2));
    assert_true(places_overlap(&c, BODY_A0, BODY_A) && places_overlap(&c, BODY_T, BODY_S));
    assert_int_equal(ot_storage_place(&c.storage, BODY_A, OT_SIDE_BACKWARD).base,
                     split == 1 ? OT_BASE_SLOT_WEIGHT : OT_BASE_SCRATCH);
    body_case_destroy(&c);
  }
}

// ---- segments ----

static void a_body_accumulates_only_into_initialised_accumulators(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  enum { A0, DW, A, DW_AGAIN };
  assert_false(task_of(&c, OT_OP_LINEAR_DW, A0)->attributes.accumulate);
  assert_false(task_of(&c, OT_OP_LINEAR_DW, DW)->attributes.accumulate);
  assert_true(task_of(&c, OT_OP_LINEAR_DW, A)->attributes.accumulate);
  assert_true(task_of(&c, OT_OP_LINEAR_DW, DW_AGAIN)->attributes.accumulate);
  body_case_destroy(&c);
  // If the body runs first in the micro-batch, it would accumulate into uninitialised memory.
  body_case_begin(&c, 0, 1);
  ot_op *const first = &c.program.ops[2];
  assert_int_equal(first->out[0], BODY_DW);
  first->out[0] = BODY_B;
  body_case_lower(&c);
  expect_refused(&c, "read before it is written");
  body_case_destroy(&c);
}

// Accumulation waits for a collective that writes or reads the accumulator.
static void accumulation_waits_for_collectives_on_the_same_value(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 2);
  ot_op *const sum = &c.program.ops[c.repeat + 2];
  sum->in[0] = BODY_A;
  c.program.values[BODY_S].type = c.program.values[BODY_A].type;
  c.program.ops[c.repeat + 4].in[0] = BODY_T;
  body_case_lower(&c);
  const ot_task *const adds = task_of(&c, OT_OP_LINEAR_DW, 2);
  assert_int_equal(adds->out[0].value, BODY_A);
  assert_int_equal(adds->wait, index_of(&c, task_of(&c, OT_OP_ALL_REDUCE, 0)));
  expect_good(&c);
  task_of(&c, OT_OP_LINEAR_DW, 2)->wait = -1;
  expect_refused(&c, "is in flight");
  body_case_destroy(&c);
}

// ---- the check ----

static void the_check_replays_a_second_iteration(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  const ot_operand h = task_of(&c, OT_OP_ADD, 0)->out[0];
  task_of(&c, OT_OP_ADD, 2)->out[0].offset = h.offset;
  task_of(&c, OT_OP_ADD, 3)->in[1].offset = h.offset;
  expect_refused(&c, "overwritten by another tensor");
  body_case_destroy(&c);
}

static void the_check_rejects_readers_of_body_values(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  const ot_operand made = task_of(&c, OT_OP_ADD, 3)->out[0];
  assert_int_equal(made.value, BODY_T2);
  ot_task *const behind = task_of(&c, OT_OP_ADD, 4);
  behind->in[0].value = made.value;
  behind->in[0].offset = made.offset;
  expect_refused(&c, "read before it is written");
  body_case_destroy(&c);
}

static void a_body_overwrites_only_scratch(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  ot_task *const adds = task_of(&c, OT_OP_LINEAR_DW, 3);
  assert_int_equal(adds->out[0].base, OT_BASE_GRADIENT);
  adds->attributes.accumulate = false;
  expect_refused(&c, "a loop body overwrites memory other than scratch");
  body_case_destroy(&c);
}

// Ops and tasks of bodies are printed after a bar.
static void bodies_are_seen_in_print(void **state) {
  (void)state;
  body_case c;
  begin(&c, 2);
  const char *const program = ot_program_print(&c.program, &c.arena);
  assert_non_null(strstr(program, "\n  F repeat "));
  assert_non_null(strstr(program, " repeated=6\n  F | add "));
  assert_non_null(strstr(program, "\n  F add              a a -> y\n"));
  const char *const schedule = ot_schedule_print(&c.schedule, &c.arena);
  assert_non_null(strstr(schedule, " repeated=6\n  | add "));
  assert_non_null(strstr(schedule, "\n  | all_reduce "));
  assert_non_null(strstr(schedule, "\n  add  "));
  body_case_destroy(&c);
}

static void memory_without_content_may_be_filled(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  c.program.ops[c.repeat].out[1] = BODY_B;
  c.program.ops[c.repeat + 4].out[0] = BODY_B;
  c.program.ops[c.program.num_ops - 1].in[1] = BODY_B;
  assert_true(c.program.ops[c.repeat + 4].attributes.accumulate);
  if (ot_program_check(&c.program, &c.arena) != OT_OK) fail_msg("%s", ot_fail_message());
  body_case_lower(&c);
  expect_good(&c);
  const ot_task *const repeat = task_of(&c, OT_OP_REPEAT, 0);
  assert_false(overlap(&repeat->out[0], &repeat->out[1]));
  assert_false(overlap(&repeat->out[1], &repeat->out[2]));
  body_case_destroy(&c);
}

static void bodies_that_are_none_are_refused(void **state) {
  (void)state;
  body_case c;
  begin(&c, 1);
  ot_task *const repeat = task_of(&c, OT_OP_REPEAT, 0);
  const int repeated = repeat->attributes.repeated;
  repeat->attributes.repeated = 0;
  expect_refused(&c, "repeats 0 tasks");
  repeat->attributes.repeated = 100;
  expect_refused(&c, "repeats 100 tasks");
  repeat->attributes.repeated = repeated;
  repeat->in[2].type.dtype = OT_F32;
  expect_refused(&c, "without an iteration count");
  repeat->in[2].type.dtype = OT_I32;
  task_of(&c, OT_OP_ADD, 2)->kind = OT_TASK_REPEAT;
  expect_refused(&c, "not allowed in a body");
  body_case_destroy(&c);
}

static void members_of_a_group_have_the_same_bodies(void **state) {
  (void)state;
  body_case cases[2];
  const ot_schedule *schedules[2];
  for (int i = 0; i < 2; i++) {
    body_case_begin(&cases[i], i, 2);
    body_case_lower(&cases[i]);
    schedules[i] = &cases[i].schedule;
  }
  if (ot_schedules_match(schedules, 2, &cases[0].arena) != OT_OK) fail_msg("%s", ot_fail_message());
  // Rank 1 runs its all-reduce before the body.
  ot_task *const repeat = task_of(&cases[1], OT_OP_REPEAT, 0);
  const ot_task moved = *repeat;
  repeat[0] = repeat[1];
  repeat[1] = repeat[2];
  assert_int_equal(repeat[1].op, OT_OP_ALL_REDUCE);
  repeat[2] = moved;
  repeat[2].attributes.repeated -= 2;
  assert_int_equal(ot_schedules_match(schedules, 2, &cases[0].arena), OT_BUG);
  if (!strstr(ot_fail_message(), "in a loop body, but rank 1")) fail_msg("%s", ot_fail_message());
  for (int i = 0; i < 2; i++) body_case_destroy(&cases[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bodies_accumulate_over_their_iterations),
      cmocka_unit_test(live_ins_of_a_body_stay_live_to_its_end),
      cmocka_unit_test(loop_carried_values_are_updated_in_place),
      cmocka_unit_test(a_collective_works_in_place_without_other_readers),
      cmocka_unit_test(no_op_of_a_body_overwrites_its_live_ins),
      cmocka_unit_test(ops_are_not_moved_into_or_across_bodies),
      cmocka_unit_test(a_collective_ends_with_its_iteration),
      cmocka_unit_test(backward_bodies_follow_the_same_rules),
      cmocka_unit_test(a_body_accumulates_only_into_initialised_accumulators),
      cmocka_unit_test(accumulation_waits_for_collectives_on_the_same_value),
      cmocka_unit_test(the_check_replays_a_second_iteration),
      cmocka_unit_test(the_check_rejects_readers_of_body_values),
      cmocka_unit_test(a_body_overwrites_only_scratch),
      cmocka_unit_test(bodies_are_seen_in_print),
      cmocka_unit_test(memory_without_content_may_be_filled),
      cmocka_unit_test(bodies_that_are_none_are_refused),
      cmocka_unit_test(members_of_a_group_have_the_same_bodies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
