// SPDX-License-Identifier: Apache-2.0
// ctest: device full
// run: serial. Grouped GEMMs of experts and the GLU between them against their formulas, gradients
// against differences, and bits of a row independent of its neighbours.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t C, O;
  int rows[5];  // of each of 5 experts
  int unused;
} shape;

enum { E = 5 };

static const shape shapes[] = {
    {3, 7, {1, 0, 2, 0, 1}, 0},         {33, 65, {17, 3, 0, 16, 1}, 4},
    {130, 300, {0, 0, 40, 0, 0}, 0},    {20, 257, {64, 65, 63, 1, 200}, 7},
    {48, 12, {520, 0, 1100, 3, 30}, 0}, {200, 136, {130, 0, 257, 5, 1}, 9},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static int64_t rows_of(shape s) {
  int64_t rows = s.unused;
  for (int e = 0; e < E; e++) rows += s.rows[e];
  return rows;
}

static void set_offsets(const ot_tensor *offsets, shape s) {
  int at = 0;
  for (int e = 0; e <= E; e++) {
    ot_case_set(offsets, e, at);
    if (e < E) at += s.rows[e];
  }
}

static ot_case case_of(ot_op_kind kind, shape s) {
  const int64_t N = rows_of(s);
  const bool backward = kind != OT_OP_GROUPED_LINEAR;
  ot_case c = {.kind = kind, .attributes = {.threads = 2, .compute = OT_F64, .num_experts = E}};
  const ot_tensor_type w = ot_type_matrix(OT_F64, E * s.O, s.C);
  c.types.in[0] = ot_type_matrix(OT_F64, N, backward ? s.O : s.C);
  c.types.in[1] = kind == OT_OP_GROUPED_LINEAR_DW ? ot_type_matrix(OT_F64, N, s.C) : w;
  c.types.in[2] = ot_type_vector(OT_I32, E + 1);
  if (kind == OT_OP_GROUPED_LINEAR_DW) {
    c.types.out[0] = w;
    c.types.out[1] = ot_type_vector(OT_F64, E * s.O);
  }
  ot_case_create(&c);
  set_offsets(&c.in[2], s);
  return c;
}

static double at(const ot_tensor *tensor, int64_t row, int64_t column) {
  return ot_case_get(tensor, row * tensor->type.dim[1] + column);
}

static int expert_of(shape s, int64_t row) {
  int e = 0;
  for (int64_t end = s.rows[0]; e < E && row >= end;) {
    e++;
    if (e < E) end += s.rows[e];
  }
  return e;
}

static void expect_forward(const ot_case *c, shape s) {
  const int64_t N = rows_of(s);
  double *const expected = calloc((size_t)(N * s.O), sizeof *expected);
  for (int64_t r = 0; r < N; r++) {
    const int e = expert_of(s, r);
    for (int64_t o = 0; o < s.O && e < E; o++) {
      for (int64_t i = 0; i < s.C; i++) {
        expected[r * s.O + o] += at(&c->in[0], r, i) * at(&c->in[1], e * s.O + o, i);
      }
    }
  }
  ot_case_expect(&c->out[0], expected, 1e-13, "y");
  free(expected);
}

static void rows_use_the_matrix_of_their_expert(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    ot_case c = case_of(OT_OP_GROUPED_LINEAR, shapes[i]);
    ot_case_run(&c);
    expect_forward(&c, shapes[i]);
    ot_case_check_precisions(&c, 2e-6, 4e-3);
    ot_case_destroy(&c);
  }
}

// Expert e has e % 3 rows, and four rows belong to none.
static void there_may_be_many_experts(void **state) {
  (void)state;
  enum { MANY = 70, ROWS = 69 + 4, WIDTH = 8 };
  ot_case c = {.kind = OT_OP_GROUPED_LINEAR,
               .attributes = {.threads = 2, .compute = OT_F64, .num_experts = MANY},
               .types = {.in = {ot_type_matrix(OT_F64, ROWS, WIDTH),
                                ot_type_matrix(OT_F64, MANY * WIDTH, WIDTH),
                                ot_type_vector(OT_I32, MANY + 1)}}};
  ot_case_create(&c);
  double expected[ROWS * WIDTH] = {0};
  int row = 0;
  for (int e = 0; e < MANY; e++) {
    for (int last = row + e % 3; row < last; row++) {
      for (int i = 0; i < WIDTH * WIDTH; i++) {
        expected[row * WIDTH + i / WIDTH] +=
            at(&c.in[0], row, i % WIDTH) * at(&c.in[1], e * WIDTH + i / WIDTH, i % WIDTH);
      }
    }
    ot_case_set(&c.in[2], e + 1, row);
  }
  assert_int_equal(row, ROWS - 4);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], expected, 1e-13, "y");
  ot_case_check_precisions(&c, 2e-6, 4e-3);
  ot_case_destroy(&c);
}

static void gradients_are_those_of_the_output(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    ot_case c = case_of(OT_OP_GROUPED_LINEAR, shapes[i]);
    if (i == 0) ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

static void rows_get_the_bias_of_their_expert(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case plain = case_of(OT_OP_GROUPED_LINEAR, s);
    ot_case c = {.kind = plain.kind, .attributes = plain.attributes, .types = plain.types};
    c.types.in[3] = ot_type_vector(OT_F64, E * s.O);
    ot_case_create(&c);
    set_offsets(&c.in[2], s);
    ot_case_run(&plain);
    ot_case_run(&c);
    double *const expected = calloc((size_t)(rows_of(s) * s.O), sizeof *expected);
    for (int64_t k = 0; k < rows_of(s) * s.O; k++) {
      const int e = expert_of(s, k / s.O);
      const double bias = e < E ? ot_case_get(&c.in[3], e * s.O + k % s.O) : 0;
      expected[k] = ot_case_get(&plain.out[0], k) + bias;
    }
    ot_case_expect(&c.out[0], expected, 1e-15, "y");
    free(expected);
    ot_case_check_precisions(&c, 2e-6, 4e-3);
    if (i < 2) ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&plain);
    ot_case_destroy(&c);
  }
}

static void gradient_kernels_agree_in_every_precision(void **state) {
  (void)state;
  static const ot_op_kind kinds[] = {OT_OP_GROUPED_LINEAR_DX, OT_OP_GROUPED_LINEAR_DW};
  for (int i = 0; i < 2 * NUM_SHAPES; i++) {
    ot_case c = case_of(kinds[i % 2], shapes[i / 2]);
    ot_case_check_precisions(&c, 3e-6, 6e-3);
    ot_case_destroy(&c);
  }
}

// dw of expert e is the sum over its rows only: an unassigned row changes nothing, and an expert
// without rows has a gradient of zero.
static void weights_have_the_gradient_of_their_rows(void **state) {
  (void)state;
  const shape s = shapes[1];
  ot_case c = case_of(OT_OP_GROUPED_LINEAR_DW, s);
  ot_case_run(&c);
  double *const expected = calloc((size_t)(E * s.O * s.C), sizeof *expected);
  for (int64_t r = 0; r < rows_of(s); r++) {
    const int e = expert_of(s, r);
    for (int64_t o = 0; o < s.O && e < E; o++) {
      for (int64_t i = 0; i < s.C; i++) {
        expected[(e * s.O + o) * s.C + i] += at(&c.in[0], r, o) * at(&c.in[1], r, i);
      }
    }
  }
  ot_case_expect(&c.out[0], expected, 1e-13, "dw");
  memset(expected, 0, (size_t)(E * s.O) * sizeof *expected);
  for (int64_t r = 0; r < rows_of(s); r++) {
    const int e = expert_of(s, r);
    for (int64_t o = 0; o < s.O && e < E; o++) expected[e * s.O + o] += at(&c.in[0], r, o);
  }
  ot_case_expect(&c.out[1], expected, 1e-13, "dbias");
  free(expected);
  ot_case_destroy(&c);
}

// The first rows of expert 2 again, with other numbers of rows before and after them. Shapes with
// one N and E have one tile, and cross the sizes at which a BLAS changes its code path.
static void bits_of_a_row_do_not_depend_on_its_neighbours(void **state) {
  (void)state;
  static const int counts[][E] = {
      {100, 50, 350, 0, 0}, {0, 0, 7, 493, 0}, {250, 0, 1, 100, 149}, {1, 2, 33, 464, 0}};
  static const ot_op_kind kinds[] = {OT_OP_GROUPED_LINEAR, OT_OP_GROUPED_LINEAR_DX};
  static const ot_dtype storages[] = {OT_F32, OT_BF16};
  for (int k = 0; k < 4; k++) {
    char first[96 * sizeof(float)];
    for (int i = 0; i < 4; i++) {
      shape s = {96, 96, {0}, 0};
      memcpy(s.rows, counts[i], sizeof s.rows);
      ot_case wide = case_of(kinds[k % 2], s);
      ot_case c;
      ot_case_clone(&wide, OT_F32, storages[k / 2], &c);
      const int64_t row = (int64_t)counts[i][0] + counts[i][1];
      for (int64_t e = 0; e < 96; e++) {
        ot_case_set(&c.in[0], row * 96 + e, (double)(e % 7) / 3 - 0.7);
      }
      ot_case_run(&c);
      const size_t bytes = (size_t)(96 * ot_dtype_bytes(storages[k / 2]));
      const char *const y = (const char *)c.out[0].data + (size_t)row * bytes;
      if (i == 0) memcpy(first, y, bytes);
      assert_memory_equal(y, first, bytes);
      ot_case_destroy(&c);
      ot_case_destroy(&wide);
    }
  }
}

static void cost_counts_used_rows_and_matrices(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .num_experts = 8};
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 5), ot_type_matrix(OT_F32, 8 * 3, 5),
                              ot_type_vector(OT_I32, 9)}};
  assert_int_equal(ot_op_infer(OT_OP_GROUPED_LINEAR, &attributes, &types), OT_OK);
  const ot_cost cost = ot_op_cost(OT_OP_GROUPED_LINEAR, &attributes, &types);
  assert_true(cost.matrix_flops == 2 * 4 * 5 * 3);
  assert_true(cost.bytes_read == 4 * (20 + 4 * 15 + 9) && cost.bytes_written == 4 * 12);
  assert_true(cost.padded_flops == 2 * 5 * 3 * 4 * 3.5);  // in eights
}

// A buffer for ten rows receives eight under balanced load; results of the other rows are zero.
static void cost_of_a_buffer_counts_received_rows(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.num_experts = 4,
                                       .held_experts = 2,
                                       .experts_per_token = 2,
                                       .exchange_rows = 10,
                                       .copy_rows = 8};
  const ot_op_types product = {.in = {ot_type_matrix(OT_F32, 10, 5), ot_type_matrix(OT_F32, 6, 5),
                                      ot_type_vector(OT_I32, 3)},
                               .out = {ot_type_matrix(OT_F32, 10, 3)}};
  const ot_cost forward = ot_op_cost(OT_OP_GROUPED_LINEAR, &attributes, &product);
  assert_true(forward.matrix_flops == 2 * 8 * 5 * 3);
  assert_int_equal((int)(forward.bytes_read + 0.5), 4 * (8 * 5 + 6 * 5 + 3));
  assert_true(forward.bytes_written == 4 * 10 * 3);
  const ot_op_types weight = {.in = {ot_type_matrix(OT_F32, 10, 3), ot_type_matrix(OT_F32, 10, 5),
                                     ot_type_vector(OT_I32, 3)},
                              .out = {ot_type_matrix(OT_F32, 6, 5)}};
  const ot_cost added = ot_op_cost(OT_OP_GROUPED_LINEAR_DW, &attributes, &weight);
  assert_true(added.matrix_flops == 2 * 8 * 5 * 3);
  assert_int_equal((int)(added.bytes_read + 0.5), 4 * (8 * 3 + 8 * 5 + 3));
}

// ---- the gate of a row ----

static void a_scale_multiplies_rows_and_has_a_gradient(void **state) {
  (void)state;
  const ot_tensor_type x = ot_type_matrix(OT_F64, 7, 2 * 9);
  ot_case scaled = {
      .kind = OT_OP_GLU,
      .attributes = {.threads = 2, .compute = OT_F64, .activation = OT_ACTIVATION_SILU},
      .types = {.in = {x, ot_type_vector(OT_F64, 7)}},
      .statistic_inputs = 1u << 1};
  ot_case plain = scaled;
  plain.types.in[1] = (ot_tensor_type){0};
  ot_case_create(&scaled);
  ot_case_create(&plain);
  ot_case_run(&scaled);
  ot_case_run(&plain);
  for (int i = 0; i < 7 * 9; i++) {
    const double scale = ot_case_get(&scaled.in[1], i / 9);
    assert_true(ot_case_get(&scaled.out[0], i) == scale * ot_case_get(&plain.out[0], i));
  }
  ot_case_check_precisions(&scaled, 2e-6, 8e-3);
  ot_case_check_gradients(&scaled, 1e-4, 1e-8);
  ot_case_destroy(&plain);
  ot_case_destroy(&scaled);
  ot_case wide = {.kind = OT_OP_GLU_GRAD,
                  .attributes = {.threads = 2, .compute = OT_F64, .activation = OT_ACTIVATION_SILU},
                  .types = {.in = {ot_type_matrix(OT_F64, 3, 2051),
                                   ot_type_matrix(OT_F64, 3, 2 * 2051), ot_type_vector(OT_F64, 3)}},
                  .statistic_inputs = 1u << 2};
  ot_case_create(&wide);
  ot_case_check_precisions(&wide, 4e-6, 8e-3);
  ot_case_destroy(&wide);
}

// Four of seven rows are assigned; the content of the others is never used.
static void unassigned_rows_are_zero(void **state) {
  (void)state;
  ot_case c = {.kind = OT_OP_GLU,
               .attributes = {.threads = 2,
                              .compute = OT_F64,
                              .activation = OT_ACTIVATION_SILU,
                              .num_experts = 2},
               .types = {.in = {ot_type_matrix(OT_F64, 7, 2 * 9), ot_type_vector(OT_F64, 7),
                                ot_type_vector(OT_I32, 3)}},
               .statistic_inputs = 1u << 1};
  ot_case_create(&c);
  ot_case_set(&c.in[2], 1, 1);
  ot_case_set(&c.in[2], 2, 4);
  ot_case_check_gradients(&c, 1e-4, 1e-8);
  for (int i = 4 * 18; i < 7 * 18; i++) ot_case_set(&c.in[0], i, NAN);
  for (int i = 4; i < 7; i++) ot_case_set(&c.in[1], i, NAN);
  ot_case_run(&c);
  for (int i = 0; i < 7 * 9; i++) assert_true((ot_case_get(&c.out[0], i) == 0) == (i >= 4 * 9));
  ot_case_destroy(&c);
}

static void a_router_keeps_its_logits_in_the_compute_type(void **state) {
  (void)state;
  ot_case c = {.kind = OT_OP_LINEAR_WIDE,
               .attributes = {.threads = 2, .compute = OT_F64},
               .types = {.in = {ot_type_matrix(OT_F64, 17, 33), ot_type_matrix(OT_F64, 8, 33)}}};
  ot_case_create(&c);
  ot_case narrow;
  ot_case_clone(&c, OT_F32, OT_BF16, &narrow);
  assert_int_equal(narrow.out[0].type.dtype, OT_F32);
  ot_case_destroy(&narrow);
  ot_case_check_precisions(&c, 2e-6, 2e-6);
  ot_case_check_gradients(&c, 1e-3, 1e-10);
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_use_the_matrix_of_their_expert),
      cmocka_unit_test(there_may_be_many_experts),
      cmocka_unit_test(gradients_are_those_of_the_output),
      cmocka_unit_test(rows_get_the_bias_of_their_expert),
      cmocka_unit_test(gradient_kernels_agree_in_every_precision),
      cmocka_unit_test(weights_have_the_gradient_of_their_rows),
      cmocka_unit_test(bits_of_a_row_do_not_depend_on_its_neighbours),
      cmocka_unit_test(cost_counts_used_rows_and_matrices),
      cmocka_unit_test(cost_of_a_buffer_counts_received_rows),
      cmocka_unit_test(a_scale_multiplies_rows_and_has_a_gradient),
      cmocka_unit_test(unassigned_rows_are_zero),
      cmocka_unit_test(a_router_keeps_its_logits_in_the_compute_type),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
