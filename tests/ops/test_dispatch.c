// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Copies between tokens and rows sorted by expert against their definition, gradients
// against differences.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { R = 6, S = 2, N = 9, WIDE = 1032 };

static const int widths[] = {5, WIDE};
static const int place[R * S] = {4, 1, 2, -1, 5, 0, -1, 3, -1, -1, 6, 7};

static double at(const ot_tensor *tensor, int64_t row, int64_t column) {
  return ot_case_get(tensor, row * tensor->type.dim[1] + column);
}

static ot_op_attributes capacity_of_two(int copies) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_experts = 3,
                            .experts_per_token = S,
                            .routing = OT_MOE_DROP_BY_POSITION,
                            .capacity = 3,
                            .sequence_length = R,
                            .expert_copies = copies};
}

static int place_of(int slot, int copy) { return place[slot] < 0 ? -1 : place[slot] + N * copy; }

static void set_places(const ot_tensor *places, const ot_tensor *offsets, int copies) {
  static const int ends[] = {0, 3, 6, 8};
  for (int i = 0; i < R * S * copies; i++) {
    ot_case_set(places, i, place_of(i / copies, i % copies));
  }
  for (int i = 0; i < 4; i++) ot_case_set(offsets, i, ends[i]);
}

static ot_case dispatch_case(int C, int copies) {
  ot_case c = {.kind = OT_OP_DISPATCH,
               .attributes = capacity_of_two(copies),
               .types = {.in = {ot_type_matrix(OT_F64, R, C), ot_type_matrix(OT_F64, R, S),
                                ot_type_matrix(OT_I32, R, S * copies), ot_type_vector(OT_I32, 4)}},
               .statistic_inputs = 1u << 1};
  ot_case_create(&c);
  set_places(&c.in[2], &c.in[3], copies);
  return c;
}

static void expect_copies(const ot_case *c, int C, int copies) {
  for (int i = 0; i < R * S * copies; i++) {
    const int slot = i / copies, row = place_of(slot, i % copies);
    if (row < 0) continue;
    for (int k = 0; k < C; k++) assert_true(at(&c->out[0], row, k) == at(&c->in[0], slot / S, k));
    assert_true(ot_case_get(&c->out[1], row) == ot_case_get(&c->in[1], slot));
  }
  for (int copy = 0; copy < copies; copy++) {
    for (int k = 0; k < C; k++) assert_true(at(&c->out[0], N * copy + N - 1, k) == 0);
    assert_true(ot_case_get(&c->out[1], N * copy + N - 1) == 0);
  }
}

static void every_row_is_a_copy_of_its_token_and_the_others_are_zero(void **state) {
  (void)state;
  for (int variant = 0; variant < 6; variant++) {
    const int copies = 1 + variant % 3, C = widths[variant / 3];
    ot_case c = dispatch_case(C, copies);
    assert_int_equal(c.out[0].type.dim[0], N * copies);
    ot_case_run(&c);
    expect_copies(&c, C, copies);
    ot_case_check_precisions(&c, 0, 0);
    if (C < WIDE) ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

// Without gates and offsets.
static void rows_alone_are_copied(void **state) {
  (void)state;
  enum { C = 8 };
  ot_case gated = dispatch_case(C, 2);
  ot_case c = {.kind = gated.kind, .attributes = gated.attributes, .types = gated.types};
  c.types.in[1] = c.types.in[3] = (ot_tensor_type){0};
  ot_case_create(&c);
  set_places(&c.in[2], &gated.in[3], 2);
  ot_case_run(&c);
  for (int i = 0; i < R * S * 2; i++) {
    const int row = place_of(i / 2, i % 2);
    for (int k = 0; k < C && row >= 0; k++) {
      assert_true(at(&c.out[0], row, k) == at(&c.in[0], i / 2 / S, k));
    }
  }
  ot_case_destroy(&c);
  ot_case_destroy(&gated);
}

static ot_case combine_case(bool added, int C, int copies) {
  ot_case c = {
      .kind = OT_OP_COMBINE,
      .attributes = capacity_of_two(copies),
      .types = {.in = {ot_type_matrix(OT_F64, N * copies, C), ot_type_vector(OT_F64, N * copies),
                       ot_type_matrix(OT_I32, R, S * copies), ot_type_vector(OT_I32, 4),
                       added ? ot_type_matrix(OT_F64, R, C) : (ot_tensor_type){0}}},
      .statistic_inputs = 1u << 1};
  ot_case_create(&c);
  set_places(&c.in[2], &c.in[3], copies);
  return c;
}

static double sum_of_rows(const ot_case *c, int copies, int token, int column, double addend) {
  double sum = addend;
  for (int i = token * S * copies; i < (token + 1) * S * copies; i++) {
    const int row = place_of(i / copies, i % copies);
    if (row >= 0) sum += at(&c->in[0], row, column);
  }
  return sum;
}

static double sum_of_gates(const ot_case *c, int copies, int slot) {
  double sum = 0;
  for (int copy = 0; copy < copies; copy++) {
    const int row = place_of(slot, copy);
    if (row >= 0) sum += ot_case_get(&c->in[1], row);
  }
  return sum;
}

static void a_token_sums_its_expert_outputs_in_slot_order(void **state) {
  (void)state;
  for (int variant = 0; variant < 12; variant++) {
    const int copies = 1 + variant / 2 % 3, C = widths[variant / 6];
    const bool added = variant % 2 == 1;
    ot_case c = combine_case(added, C, copies);
    ot_case_run(&c);
    for (int i = 0; i < R * C; i++) {
      const double addend = added ? ot_case_get(&c.in[4], i) : 0;
      assert_true(ot_case_get(&c.out[0], i) == sum_of_rows(&c, copies, i / C, i % C, addend));
    }
    for (int i = 0; i < R * S; i++) {
      assert_true(ot_case_get(&c.out[1], i) == sum_of_gates(&c, copies, i));
    }
    ot_case_check_precisions(&c, 2e-6, 4e-3);
    if (C < WIDE) ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_is_a_copy_of_its_token_and_the_others_are_zero),
      cmocka_unit_test(rows_alone_are_copied),
      cmocka_unit_test(a_token_sums_its_expert_outputs_in_slot_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
