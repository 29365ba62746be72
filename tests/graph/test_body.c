// SPDX-License-Identifier: Apache-2.0
// run: any machine. Rules of loop bodies in a program: each rule broken once. Bodies are not
// recomputed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/body.h"
#include "graph/program_check.h"
#include "graph/recompute.h"
#include "support/body_case.h"

typedef void (*program_change)(body_case *c);

static void expect_refused(program_change change, const char *why) {
  body_case c;
  body_case_begin(&c, 0, 1);
  change(&c);
  assert_int_equal(ot_program_check(&c.program, &c.arena), OT_BUG);
  if (!strstr(ot_fail_message(), why)) fail_msg("%s", ot_fail_message());
  body_case_destroy(&c);
}

static ot_op *op_at(body_case *c, int behind_repeat) {
  return &c->program.ops[c->repeat + behind_repeat];
}

static ot_op *last_op(body_case *c) { return &c->program.ops[c->program.num_ops - 1]; }

enum { T = 1, U, T2, ADD_A, ADD_DW };  // ops of the body

static void a_program_with_a_body_passes(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  if (ot_program_check(&c.program, &c.arena) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(ot_program_repeat_of(&c.program, c.repeat), -1);
  assert_int_equal(ot_program_repeat_of(&c.program, c.repeat + T), c.repeat);
  assert_int_equal(ot_program_repeat_of(&c.program, c.repeat + ADD_DW), c.repeat);
  assert_int_equal(ot_program_repeat_of(&c.program, c.repeat + ADD_DW + 1), -1);
  assert_true(ot_program_updates(&c.program, c.repeat + ADD_A, 0));
  assert_false(ot_program_updates(&c.program, c.repeat + ADD_DW, 0));
  body_case_destroy(&c);
}

static void empty_body(body_case *c) { op_at(c, 0)->attributes.repeated = 0; }
static void long_body(body_case *c) { op_at(c, 0)->attributes.repeated = 7; }
static void body_of_two_parts(body_case *c) { op_at(c, U)->part = OT_PART_INPUT; }

static void nest(body_case *c) {
  ot_op *const inner = op_at(c, U);
  *inner = *op_at(c, 0);
  inner->in[0] = -1;
  inner->out[0] = BODY_B;
  inner->out[2] = BODY_S;
  inner->attributes.repeated = 1;
  c->program.values[BODY_S].type = c->program.values[BODY_ROUND].type;
  op_at(c, T2)->in[1] = BODY_T;
}

static void hold_a_composite(body_case *c) {
  op_at(c, U)->kind = OT_OP_ATTENTION;
  op_at(c, U)->attributes.group_size = 2;
  op_at(c, U)->in[2] = BODY_X;
}

static void bodies_that_are_none_are_refused(void **state) {
  (void)state;
  expect_refused(empty_body, "repeats 0 ops");
  expect_refused(long_body, "repeats 7 ops, only 6 follow it");
  expect_refused(body_of_two_parts, "which belongs to another part");
  expect_refused(nest, "(repeat), which a loop body may not contain");
  expect_refused(hold_a_composite, "(attention), which a loop body may not contain");
}

static void read_outside(body_case *c) {
  c->program.values[BODY_T2].type = c->program.values[BODY_A].type;
  last_op(c)->in[1] = BODY_T2;
}
static void read_round_outside(body_case *c) { last_op(c)->in[1] = BODY_ROUND; }
static void leave(body_case *c) { c->program.output = BODY_T2; }

static void body_values_are_local(void **state) {
  (void)state;
  expect_refused(read_outside, "reads t2, which is local to the body");
  expect_refused(read_round_outside, "reads round, which is local to the body");
  expect_refused(leave, "its result t2 is local to the body");
}

static void add_outside(body_case *c) { c->program.ops[1].attributes.accumulate = true; }
static void add_again_outside(body_case *c) {
  *last_op(c) = *op_at(c, ADD_A);
  last_op(c)->in[0] = BODY_H;
}
static void add_to_what_is_carried(body_case *c) { op_at(c, ADD_A)->out[0] = BODY_A0; }
static void add_to_what_is_new(body_case *c) { op_at(c, ADD_A)->out[0] = BODY_B; }
static void write_again(body_case *c) { op_at(c, ADD_A)->attributes.accumulate = false; }
static void write_again_by_what_never_adds(body_case *c) { op_at(c, T2)->out[0] = BODY_A; }

static void a_body_accumulates_only_into_loop_outputs(void **state) {
  (void)state;
  expect_refused(add_outside, "adds to a0, which its enclosing repeat does not output");
  expect_refused(add_again_outside, "adds to a, which its enclosing repeat does not output");
  expect_refused(add_to_what_is_carried, "adds to a0, which its enclosing repeat does not output");
  expect_refused(add_to_what_is_new, "adds to b, which its enclosing repeat does not output");
  expect_refused(write_again, "writes a a second time");
  expect_refused(write_again_by_what_never_adds, "writes a a second time");
}

// A loop-carried value keeps its placement, and the body's contribution must have it.
static void loop_carried_values_keep_their_placement(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  const ot_placement varies = {OT_VARYING, 0}, sum = {OT_PARTIAL, 0};
  ot_value *const values = c.program.values;
  const int rows[] = {BODY_X, BODY_H, BODY_T, BODY_U, BODY_T2};
  const int sums[] = {BODY_A0, BODY_A, BODY_Y, BODY_DW};
  for (int i = 0; i < OT_COUNT(rows); i++) values[rows[i]].placement[OT_PLACED_DP] = varies;
  for (int i = 0; i < OT_COUNT(sums); i++) values[sums[i]].placement[OT_PLACED_DP] = sum;
  if (ot_program_check(&c.program, &c.arena) != OT_OK) fail_msg("%s", ot_fail_message());
  values[BODY_A].placement[OT_PLACED_DP] = varies;
  assert_int_equal(ot_program_check(&c.program, &c.arena), OT_BUG);
  if (!strstr(ot_fail_message(), "op repeat makes a P on dp")) fail_msg("%s", ot_fail_message());
  body_case_destroy(&c);
}

static void bodies_are_not_recomputed(void **state) {
  (void)state;
  body_case c;
  body_case_begin(&c, 0, 1);
  ot_op backward = c.program.ops[0];
  backward.part = OT_PART_INPUT;
  backward.in[0] = BODY_H;
  backward.in[1] = BODY_A;
  backward.out[0] = BODY_B;
  ot_program_add_op(&c.program, &c.arena, &backward);
  ot_recompute_set set;
  ot_recompute_build(&c.program, (ot_recompute_policy){.mode = OT_RECOMPUTE_FULL}, &c.arena, &set);
  assert_int_equal(set.num_emitted, 1);
  assert_true(set.emitted[0]);  // computes h
  assert_true(set.kept[BODY_A]);
  assert_false(set.kept[BODY_H]);
  body_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_program_with_a_body_passes),
      cmocka_unit_test(bodies_that_are_none_are_refused),
      cmocka_unit_test(body_values_are_local),
      cmocka_unit_test(a_body_accumulates_only_into_loop_outputs),
      cmocka_unit_test(loop_carried_values_keep_their_placement),
      cmocka_unit_test(bodies_are_not_recomputed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
