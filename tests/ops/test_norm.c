// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. RMSNorm and LayerNorm against their formulas and PyTorch, gradients against
// differences, for storage types, thread counts and shapes with separate code paths.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fixtures/torch_values.h"
#include "support/op_case.h"

typedef struct shape {
  int64_t rows, columns;
} shape;

static const shape shapes[] = {{1, 1},    {5, 7},    {17, 130},  {3, 2051},
                               {1031, 3}, {300, 67}, {19, 1024}, {2, 8448}};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_case rmsnorm_case(shape s) {
  ot_case c = {.kind = OT_OP_RMSNORM,
               .attributes = {.threads = 2, .compute = OT_F64, .epsilon = 1e-3, .norm_offset = 1},
               .types = {.in = {ot_type_matrix(OT_F64, s.rows, s.columns),
                                ot_type_vector(OT_F64, s.columns)}}};
  ot_case_create(&c);
  return c;
}

static ot_case layernorm_case(shape s, bool bias) {
  ot_case c = {
      .kind = OT_OP_LAYERNORM,
      .attributes = {.threads = 2, .compute = OT_F64, .epsilon = 1e-3},
      .types = {.in = {ot_type_matrix(OT_F64, s.rows, s.columns), ot_type_vector(OT_F64, s.columns),
                       bias ? ot_type_vector(OT_F64, s.columns) : (ot_tensor_type){0}}}};
  ot_case_create(&c);
  return c;
}

// The gradient op of a forward case that has run, with random dy, partial and prior sums.
static ot_case grad_case(const ot_case *forward, ot_op_kind kind) {
  const bool layer = kind == OT_OP_LAYERNORM_GRAD;
  const ot_tensor_type x = forward->types.in[0];
  const ot_tensor_type w = forward->types.in[1];
  ot_case c = {.kind = kind,
               .attributes = forward->attributes,
               .types = {.in = {x, x, w, forward->types.out[1]}, .out = {{0}, w}},
               .statistic_inputs = 1u << 3};
  if (layer) {
    c.types.in[4] = forward->types.out[2];
    c.types.out[2] = w;
    c.statistic_inputs |= 1u << 4;
  }
  c.types.in[layer ? 5 : 4] = x;
  ot_case_create(&c);
  for (int64_t i = 0; i < ot_type_elements(&x); i++) {
    ot_case_set(&c.in[1], i, ot_case_get(&forward->in[0], i));
  }
  for (int64_t i = 0; i < x.dim[0]; i++) {
    ot_case_set(&c.in[3], i, ot_case_get(&forward->out[1], i));
    if (layer) ot_case_set(&c.in[4], i, ot_case_get(&forward->out[2], i));
  }
  return c;
}

// y of row `row` of a norm about `mean`, as the header states it.
static void expect_row(const ot_case *c, int64_t row, bool layer, double *y) {
  const int64_t columns = c->in[0].type.dim[1];
  double mean = 0;
  double square = 0;
  for (int64_t i = 0; i < columns; i++) mean += ot_case_get(&c->in[0], row * columns + i);
  mean = layer ? mean / (double)columns : 0;
  for (int64_t i = 0; i < columns; i++) {
    square += pow(ot_case_get(&c->in[0], row * columns + i) - mean, 2);
  }
  const double rstd = 1 / sqrt(square / (double)columns + c->attributes.epsilon);
  for (int64_t i = 0; i < columns; i++) {
    const double h = (ot_case_get(&c->in[0], row * columns + i) - mean) * rstd;
    const double w = ot_case_get(&c->in[1], i) + c->attributes.norm_offset;
    y[row * columns + i] = h * w + (c->in[2].data ? ot_case_get(&c->in[2], i) : 0);
  }
}

static void expect_formula(ot_case *c, bool layer) {
  const int64_t elements = ot_type_elements(&c->in[0].type);
  double *const y = calloc((size_t)elements, sizeof *y);
  ot_case_run(c);
  for (int64_t row = 0; row < c->in[0].type.dim[0]; row++) expect_row(c, row, layer, y);
  ot_case_expect(&c->out[0], y, 1e-13, "y");
  free(y);
}

static void rmsnorm_follows_its_formula_on_awkward_shapes(void **state) {
  (void)state;
  for (int s = 0; s < NUM_SHAPES; s++) {
    ot_case c = rmsnorm_case(shapes[s]);
    expect_formula(&c, false);
    ot_case_destroy(&c);
  }
}

static void layernorm_follows_its_formula_on_awkward_shapes(void **state) {
  (void)state;
  for (int s = 0; s < NUM_SHAPES; s++) {
    ot_case c = layernorm_case(shapes[s], s % 2 == 0);
    expect_formula(&c, true);
    ot_case_destroy(&c);
  }
}

static void layernorm_agrees_with_torch(void **state) {
  (void)state;
  ot_case c = layernorm_case((shape){3, 7}, true);
  c.attributes.epsilon = 1e-5;
  for (int i = 0; i < 3; i++) ot_case_pattern(&c.in[i], i + 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_layernorm_y, 1e-14, "y");
  ot_case g = grad_case(&c, OT_OP_LAYERNORM_GRAD);
  ot_case_pattern(&g.in[0], 4);
  ot_case_pattern(&g.in[2], 2);
  ot_case_fill(&g.in[5], 1, 0, 0);
  ot_case_run(&g);
  ot_case_expect(&g.out[0], torch_layernorm_dx, 1e-13, "dx");
  ot_case_expect(&g.out[1], torch_layernorm_dw, 1e-13, "dw");
  ot_case_expect(&g.out[2], torch_layernorm_db, 1e-13, "db");
  ot_case_destroy(&g);
  ot_case_destroy(&c);
}

static void rmsnorm_agrees_with_torch(void **state) {
  (void)state;
  ot_case c = rmsnorm_case((shape){3, 7});
  c.attributes.epsilon = 1e-5;
  for (int i = 0; i < 2; i++) ot_case_pattern(&c.in[i], i + 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_rmsnorm_y, 1e-14, "y");
  ot_case g = grad_case(&c, OT_OP_RMSNORM_GRAD);
  ot_case_pattern(&g.in[0], 4);
  ot_case_pattern(&g.in[2], 2);
  ot_case_fill(&g.in[4], 1, 0, 0);
  ot_case_run(&g);
  ot_case_expect(&g.out[0], torch_rmsnorm_dx, 1e-13, "dx");
  ot_case_expect(&g.out[1], torch_rmsnorm_dw, 1e-13, "dw");
  ot_case_destroy(&g);
  ot_case_destroy(&c);
}

static void gradients_are_those_of_the_forward_kernels(void **state) {
  (void)state;
  ot_case c = rmsnorm_case((shape){5, 7});
  ot_case_check_gradients(&c, 1e-5, 1e-8);
  ot_case_destroy(&c);
  for (int bias = 0; bias < 2; bias++) {
    c = layernorm_case((shape){5, 7}, bias == 1);
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_destroy(&c);
  }
}

// float32: sums of up to 2051 terms, added one by one in a build without vector code; their
// rounding error grows with the square root of the number, to 2e-6.
static void precisions_and_threads_agree(void **state) {
  (void)state;
  for (int s = 1; s < NUM_SHAPES; s++) {
    ot_case c = rmsnorm_case(shapes[s]);
    ot_case_check_precisions(&c, 2e-6, 4e-3);
    ot_case_run(&c);
    ot_case g = grad_case(&c, OT_OP_RMSNORM_GRAD);
    ot_case_check_precisions(&g, 2e-6, 4e-3);
    ot_case_destroy(&g);
    ot_case_destroy(&c);
    c = layernorm_case(shapes[s], true);
    ot_case_check_precisions(&c, 2e-6, 4e-3);
    ot_case_run(&c);
    g = grad_case(&c, OT_OP_LAYERNORM_GRAD);
    ot_case_check_precisions(&g, 2e-6, 4e-3);
    ot_case_destroy(&g);
    ot_case_destroy(&c);
  }
}

// On a GPU a block has several of these rows: of two teams, of a team with many columns a thread,
// and with columns beyond those that it keeps in registers. The first with OT_TESTS=full only.
static void many_rows_agree(void **state) {
  (void)state;
  static const shape many[] = {{531, 1600}, {266, 4104}, {266, 2051}};
  const char *const tests = getenv("OT_TESTS");
  for (int s = tests && strcmp(tests, "full") == 0 ? 0 : 1; s < 3; s++) {
    ot_case c = s == 1 ? rmsnorm_case(many[s]) : layernorm_case(many[s], true);
    if (s == 0) ot_case_check_precisions(&c, 2e-6, 4e-3);
    ot_case_run(&c);
    ot_case g = grad_case(&c, s == 1 ? OT_OP_RMSNORM_GRAD : OT_OP_LAYERNORM_GRAD);
    ot_case_check_precisions(&g, 2e-6, 4e-3);
    ot_case_destroy(&g);
    ot_case_destroy(&c);
  }
}

static void gradients_write_the_output_again_with_its_bits(void **state) {
  (void)state;
  for (int s = 0; s < NUM_SHAPES; s++) {
    ot_case c = rmsnorm_case(shapes[s]);
    ot_case_check_written_again(&c);
    ot_case_destroy(&c);
    c = layernorm_case(shapes[s], s % 2 == 0);
    ot_case_check_written_again(&c);
    ot_case_destroy(&c);
  }
}

static void layernorm_keeps_its_precision_far_from_zero(void **state) {
  (void)state;
  ot_case c = layernorm_case((shape){4, 512}, true);
  ot_case_fill(&c.in[0], 3, 0.0625, 1000);
  for (int64_t i = 0; i < 4 * 512; i++) {
    ot_case_set(&c.in[0], i, 1000 + (double)(i * 37 % 29) / 16);
  }
  ot_case clone;
  ot_case_run(&c);
  ot_case_clone(&c, OT_F32, OT_F32, &clone);
  ot_case_run(&clone);
  double *const expected = calloc(4 * 512, sizeof *expected);
  for (int64_t i = 0; i < 4 * 512; i++) expected[i] = ot_case_get(&c.out[0], i);
  ot_case_expect(&clone.out[0], expected, 1e-3, "y");
  free(expected);
  ot_case_destroy(&clone);
  ot_case_destroy(&c);
}

static void absent_weight_gradients_are_left_out(void **state) {
  (void)state;
  ot_case c = layernorm_case((shape){5, 7}, true);
  ot_case_run(&c);
  ot_case g = grad_case(&c, OT_OP_LAYERNORM_GRAD);
  ot_case without = g;
  ot_case_run(&g);
  without.types.out[1] = without.types.out[2] = (ot_tensor_type){0};
  ot_case_create(&without);
  for (int i = 0; i < 6; i++) {
    for (int64_t k = 0; k < ot_type_elements(&g.in[i].type); k++) {
      ot_case_set(&without.in[i], k, ot_case_get(&g.in[i], k));
    }
  }
  ot_case_run(&without);
  ot_case_expect(&without.out[0], g.out[0].data, 0, "dx");
  ot_case_destroy(&without);
  ot_case_destroy(&g);
  ot_case_destroy(&c);
}

static void operands_that_do_not_fit_are_named(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 6), ot_type_vector(OT_F32, 5)}};
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  assert_int_equal(ot_op_infer(OT_OP_RMSNORM, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "rmsnorm: w is fp32 [5], expected fp32, fp64 or bf16 [6]");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rmsnorm_follows_its_formula_on_awkward_shapes),
      cmocka_unit_test(layernorm_follows_its_formula_on_awkward_shapes),
      cmocka_unit_test(layernorm_agrees_with_torch),
      cmocka_unit_test(rmsnorm_agrees_with_torch),
      cmocka_unit_test(gradients_are_those_of_the_forward_kernels),
      cmocka_unit_test(precisions_and_threads_agree),
      cmocka_unit_test(many_rows_agree),
      cmocka_unit_test(gradients_write_the_output_again_with_its_bits),
      cmocka_unit_test(layernorm_keeps_its_precision_far_from_zero),
      cmocka_unit_test(absent_weight_gradients_are_left_out),
      cmocka_unit_test(operands_that_do_not_fit_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
