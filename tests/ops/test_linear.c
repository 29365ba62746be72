// SPDX-License-Identifier: Apache-2.0
// ctest: device full
// ctest: variant=own OT_PRODUCTS=own
// ctest: variant=other full emulated OT_SHIM_LT_ORDER=reversed
// run: serial. The affine map against its formula, its gradients against differences, for storage
// types, thread counts and shapes with separate code paths.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"
#include "support/op_device.h"
#include "workspace/workspace.h"

typedef struct shape {
  int64_t R, C, O;
  bool bias, residual;
} shape;

static const shape shapes[] = {
    {1, 1, 1, true, true},    {5, 3, 7, true, false},      {17, 33, 65, false, true},
    {9, 130, 31, true, true}, {64, 48, 129, false, false}, {3, 1100, 1027, true, true},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_case linear_case(shape s) {
  return (ot_case){
      .kind = OT_OP_LINEAR,
      .attributes = {.threads = 2, .compute = OT_F64},
      .types = {.in = {ot_type_matrix(OT_F64, s.R, s.C), ot_type_matrix(OT_F64, s.O, s.C),
                       s.bias ? ot_type_vector(OT_F64, s.O) : (ot_tensor_type){0},
                       s.residual ? ot_type_matrix(OT_F64, s.R, s.O) : (ot_tensor_type){0}}}};
}

static double at(const ot_tensor *tensor, int64_t row, int64_t column) {
  return ot_case_get(tensor, row * tensor->type.dim[tensor->type.rank - 1] + column);
}

static void expect_formula(const ot_case *c, shape s) {
  double *const expected = calloc((size_t)(s.R * s.O), sizeof *expected);
  for (int64_t r = 0; r < s.R; r++) {
    for (int64_t o = 0; o < s.O; o++) {
      double sum = s.bias ? at(&c->in[2], 0, o) : 0;
      if (s.residual) sum += at(&c->in[3], r, o);
      for (int64_t i = 0; i < s.C; i++) sum += at(&c->in[0], r, i) * at(&c->in[1], o, i);
      expected[r * s.O + o] = sum;
    }
  }
  ot_case_expect(&c->out[0], expected, 1e-13, "y");
  free(expected);
}

// ---- precisions ----

static double largest_of(const ot_tensor *tensor) {
  double largest = 0;
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    largest = fmax(largest, fabs(ot_case_get(tensor, i)));
  }
  return largest;
}

// The largest element of the product of the case, with its bias or without.
static double largest_product(const ot_case *c, int addend, bool bias) {
  ot_case product, one;
  ot_case_clone(c, OT_F64, OT_F64, &product);
  one = product;
  one.in[addend] = (ot_tensor){0};
  if (addend == 3 && !bias) one.in[2] = (ot_tensor){0};
  ot_case_run(&one);
  const double largest = largest_of(&product.out[0]);
  ot_case_destroy(&product);
  return largest;
}

// Rounding to bf16, relative to the largest output of the case, which adds input `addend`: once, or
// if the device's library rounds the product first (kernels/cuda/matmul.h), that too.
static double bf16_tolerance(const ot_case *c, int addend) {
  const double once = 4e-3;
  if (!op_device_has_library() || !c->in[addend].data) return once;
  ot_case all;
  ot_case_clone(c, OT_F64, OT_F64, &all);
  ot_case_run(&all);
  const double product = fmax(largest_product(c, addend, true), largest_product(c, addend, false));
  const double twice = once * (1 + product / largest_of(&all.out[0]));
  ot_case_destroy(&all);
  return twice;
}

static void check_precisions(const ot_case *c) {
  const int addend = c->kind == OT_OP_LINEAR ? 3 : 2;
  const bool adds = c->kind != OT_OP_LINEAR_DW;
  ot_case_check_precisions(c, 2e-6, adds ? bf16_tolerance(c, addend) : 4e-3);
}

static void output_is_the_formula_in_every_precision(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    ot_case c = linear_case(shapes[i]);
    ot_case_create(&c);
    ot_case_run(&c);
    expect_formula(&c, shapes[i]);
    check_precisions(&c);
    ot_case_destroy(&c);
  }
}

static void gradients_are_those_of_the_output(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES - 1; i++) {
    if (shapes[i].R * shapes[i].C * shapes[i].O > 10000) continue;
    ot_case c = linear_case(shapes[i]);
    ot_case_create(&c);
    ot_case_run(&c);
    ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

static ot_case gradient_case(ot_op_kind kind, shape s) {
  ot_case c = {.kind = kind, .attributes = {.threads = 2, .compute = OT_F64}};
  c.types.in[0] = ot_type_matrix(OT_F64, s.R, s.O);
  if (kind == OT_OP_LINEAR_DX) {
    c.types.in[1] = ot_type_matrix(OT_F64, s.O, s.C);
    if (s.residual) c.types.in[2] = ot_type_matrix(OT_F64, s.R, s.C);
  } else {
    c.types.in[1] = ot_type_matrix(OT_F64, s.R, s.C);
    c.types.out[0] = ot_type_matrix(OT_F64, s.O, s.C);
    if (s.bias) c.types.out[1] = ot_type_vector(OT_F64, s.O);
  }
  return c;
}

static void gradient_kernels_agree_in_every_precision(void **state) {
  (void)state;
  const ot_op_kind kinds[] = {OT_OP_LINEAR_DX, OT_OP_LINEAR_DW};
  for (int i = 0; i < 2 * NUM_SHAPES; i++) {
    ot_case c = gradient_case(kinds[i % 2], shapes[i / 2]);
    ot_case_create(&c);
    check_precisions(&c);
    ot_case_destroy(&c);
  }
}

// Wider than one block of widened outputs (half a Mi elements), and large enough for several work
// items.
static void blocks_and_work_items_join_seamlessly(void **state) {
  (void)state;
  const shape s = {33, 512, 1030, true, true};
  ot_case c = linear_case(s);
  ot_case_create(&c);
  ot_case_run(&c);
  expect_formula(&c, s);
  check_precisions(&c);
  ot_case_destroy(&c);
  const ot_op_kind kinds[] = {OT_OP_LINEAR_DX, OT_OP_LINEAR_DW};
  for (int i = 0; i < 2; i++) {
    ot_case g = gradient_case(kinds[i], s);
    ot_case_create(&g);
    check_precisions(&g);
    ot_case_destroy(&g);
  }
}

static void bias_gradient_alone_makes_no_product(void **state) {
  (void)state;
  const shape s = {75, 6, 90, true, false};
  ot_case both = gradient_case(OT_OP_LINEAR_DW, s);
  ot_case alone = both;
  alone.types.in[1] = alone.types.in[0];
  alone.types.out[0] = (ot_tensor_type){0};
  ot_case_create(&both);
  ot_case_create(&alone);
  ot_case_run(&both);
  ot_case_run(&alone);
  assert_memory_equal(alone.out[1].data, both.out[1].data, 90 * sizeof(double));
  ot_case_check_precisions(&alone, 2e-6, 4e-3);
  const ot_cost cost = ot_op_cost(OT_OP_LINEAR_DW, &alone.attributes, &alone.types);
  assert_true(cost.matrix_flops == 0 && cost.bytes_read == 75 * 90 * 8);
  // Only GEMMs widen: the bias gradient needs no more workspace in bf16 than in float64.
  const int64_t bytes = ot_op_workspace(OT_OP_LINEAR_DW, &alone.attributes, &alone.types);
  alone.types.in[0].dtype = alone.types.in[1].dtype = OT_BF16;
  assert_int_equal(ot_op_workspace(OT_OP_LINEAR_DW, &alone.attributes, &alone.types), bytes);
  ot_case_destroy(&alone);
  ot_case_destroy(&both);
}

static void rejects_weights_of_another_width(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 5), ot_type_matrix(OT_F32, 3, 6)}};
  assert_int_equal(ot_op_infer(OT_OP_LINEAR, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "linear: w is fp32 [3, 6], expected fp32, fp64 or bf16 [?, 5]");
}

static void cost_counts_two_operations_for_each_multiply_add(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 5), ot_type_matrix(OT_F32, 3, 5)}};
  assert_int_equal(ot_op_infer(OT_OP_LINEAR, &attributes, &types), OT_OK);
  const ot_cost cost = ot_op_cost(OT_OP_LINEAR, &attributes, &types);
  assert_true(cost.matrix_flops == 2 * 4 * 5 * 3);
  assert_true(cost.bytes_read == 4 * (20 + 15) && cost.bytes_written == 4 * 12);
  ot_op_types dx = {.in = {types.out[0], types.in[1]}};
  assert_true(ot_op_cost(OT_OP_LINEAR_DX, &attributes, &dx).matrix_flops == 2 * 4 * 5 * 3);
  ot_op_types dw = {.in = {types.out[0], types.in[0]}, .out = {types.in[1]}};
  assert_true(ot_op_cost(OT_OP_LINEAR_DW, &attributes, &dw).matrix_flops == 2 * 4 * 5 * 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(output_is_the_formula_in_every_precision),
      cmocka_unit_test(gradients_are_those_of_the_output),
      cmocka_unit_test(gradient_kernels_agree_in_every_precision),
      cmocka_unit_test(blocks_and_work_items_join_seamlessly),
      cmocka_unit_test(bias_gradient_alone_makes_no_product),
      cmocka_unit_test(rejects_weights_of_another_width),
      cmocka_unit_test(cost_counts_two_operations_for_each_multiply_add),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
