// SPDX-License-Identifier: Apache-2.0
// run: serial. Token and position rows against their formula, the gradient against a plain loop and
// differences, with ids that repeat, and the paths of storage types, threads and shapes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t rows, vocabulary, columns, positions;  // positions 0: no position table
  double scale;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 0, 0},   {7, 5, 3, 4, 0},       {33, 10, 130, 0, 11.5},
    {9, 3, 17, 20, 1}, {5, 40, 2050, 300, 0}, {200, 30, 100, 50, 0},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static void set_ids(const ot_tensor *ids, int64_t bound, int64_t step) {
  for (int64_t i = 0; ids->data && i < ids->type.dim[0]; i++) {
    ot_case_set(ids, i, (double)((i * step + 1) % bound));
  }
}

static ot_case embedding_case(shape s) {
  const ot_tensor_type absent = {0};
  const bool positions = s.positions > 0;
  ot_case c = {
      .kind = OT_OP_EMBEDDING,
      .attributes = {.threads = 2, .compute = OT_F64, .scale = s.scale},
      .types = {.in = {ot_type_vector(OT_I32, s.rows),
                       ot_type_matrix(OT_F64, s.vocabulary, s.columns),
                       positions ? ot_type_vector(OT_I32, s.rows) : absent,
                       positions ? ot_type_matrix(OT_F64, s.positions, s.columns) : absent}}};
  ot_case_create(&c);
  set_ids(&c.in[0], s.vocabulary, 3);
  if (positions) set_ids(&c.in[2], s.positions, 5);
  return c;
}

static ot_case grad_case(shape s) {
  ot_case c = {
      .kind = OT_OP_EMBEDDING_GRAD,
      .attributes = {.threads = 2, .compute = OT_F64, .scale = s.scale},
      .types = {.in = {ot_type_matrix(OT_F64, s.rows, s.columns), ot_type_vector(OT_I32, s.rows)},
                .out = {ot_type_matrix(OT_F64, s.vocabulary, s.columns)}}};
  ot_case_create(&c);
  set_ids(&c.in[1], s.vocabulary, 3);
  return c;
}

static double expected_value(const ot_case *c, shape s, int64_t row, int64_t column) {
  const int64_t token = (int64_t)ot_case_get(&c->in[0], row);
  const double scale = s.scale == 0 ? 1 : s.scale;
  const double value = scale * ot_case_get(&c->in[1], token * s.columns + column);
  if (s.positions == 0) return value;
  const int64_t position = (int64_t)ot_case_get(&c->in[2], row);
  return value + ot_case_get(&c->in[3], position * s.columns + column);
}

static void gathers_rows_of_both_tables(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = embedding_case(s);
    double *const y = calloc((size_t)(s.rows * s.columns), sizeof *y);
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      y[k] = expected_value(&c, s, k / s.columns, k % s.columns);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 0, "y");
    ot_case_check_precisions(&c, 1e-7, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void adds_rows_into_the_table_in_their_order(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = grad_case(s);
    const int64_t elements = s.vocabulary * s.columns;
    double *const expected = calloc((size_t)elements, sizeof *expected);
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      const int64_t token = (int64_t)ot_case_get(&c.in[1], k / s.columns);
      expected[token * s.columns + k % s.columns] +=
          (s.scale == 0 ? 1 : s.scale) * ot_case_get(&c.in[0], k);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], expected, 1e-14, "dtable");
    ot_case_check_precisions(&c, 1e-6, 1e-6);
    free(expected);
    ot_case_destroy(&c);
  }
}

static void gradients_reach_both_tables(void **state) {
  (void)state;
  for (int i = 1; i < 4; i++) {
    ot_case c = embedding_case((shape){7, 5, 3, i == 1 ? 4 : 0, i == 3 ? 2.5 : 0});
    ot_case_check_gradients(&c, 1e-3, 1e-9);
    ot_case_destroy(&c);
  }
}

static void refuses_a_scale_together_with_positions(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 9, 6),
                              ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 8, 6)}};
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .scale = 2};
  assert_int_equal(ot_op_infer(OT_OP_EMBEDDING, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "embedding: scale 2 together with positions is not supported");
}

static void stores_the_rows_as_the_builder_asks(void **state) {
  (void)state;
  ot_case c = {.kind = OT_OP_EMBEDDING,
               .attributes = {.threads = 1, .compute = OT_F32},
               .types = {.in = {ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 9, 6)},
                         .out = {ot_type_vector(OT_BF16, 1)}}};
  ot_case_create(&c);
  assert_int_equal(c.types.out[0].dtype, OT_BF16);
  assert_int_equal(ot_type_elements(&c.types.out[0]), 24);
  ot_case_run(&c);
  for (int64_t i = 0; i < 6; i++) {
    assert_true(ot_case_get(&c.out[0], i) == ot_case_get(&c.in[1], i));
  }
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers_rows_of_both_tables),
      cmocka_unit_test(adds_rows_into_the_table_in_their_order),
      cmocka_unit_test(gradients_reach_both_tables),
      cmocka_unit_test(refuses_a_scale_together_with_positions),
      cmocka_unit_test(stores_the_rows_as_the_builder_asks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
