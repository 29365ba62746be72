// SPDX-License-Identifier: Apache-2.0
// ctest: device full
// run: serial. The mix of block outputs against its formula, its gradients against differences, for
// storage types, thread counts, stack positions and shapes with separate code paths.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t stack, rows, columns;
  bool last;
} shape;

static const shape shapes[] = {{1, 1, 1, false},   {1, 5, 7, true},     {3, 17, 130, true},
                               {2, 3, 2051, true}, {9, 300, 67, false}, {40, 5, 3, true}};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_case mix_case(shape s) {
  const ot_tensor_type stack = {.dtype = OT_F64, .rank = 3, .dim = {s.stack, s.rows, s.columns}};
  ot_case c = {
      .kind = OT_OP_RESIDUAL_ATTENTION,
      .attributes = {.threads = 2, .compute = OT_F64, .epsilon = 1e-3},
      .types = {.in = {stack,
                       s.last ? ot_type_matrix(OT_F64, s.rows, s.columns) : (ot_tensor_type){0},
                       ot_type_vector(OT_F64, s.columns)}}};
  ot_case_create(&c);
  return c;
}

// Element k of source i at `row`.
static double source(const ot_case *c, int64_t i, int64_t row, int64_t k) {
  const int64_t *const dim = c->in[0].type.dim;
  return i < dim[0] ? ot_case_get(&c->in[0], (i * dim[1] + row) * dim[2] + k)
                    : ot_case_get(&c->in[1], row * dim[2] + k);
}

// y and the weights of `row`, as the header states them.
static void expect_row(const ot_case *c, int64_t row, int64_t sources, double *weights, double *y) {
  const int64_t columns = c->in[0].type.dim[2];
  double sum = 0;
  for (int64_t i = 0; i < sources; i++) {
    double square = 0, product = 0;
    for (int64_t k = 0; k < columns; k++) {
      square += pow(source(c, i, row, k), 2);
      product += source(c, i, row, k) * ot_case_get(&c->in[2], k);
    }
    weights[i] = exp(product / sqrt(square / (double)columns + c->attributes.epsilon));
    sum += weights[i];
  }
  memset(y, 0, (size_t)columns * sizeof *y);
  for (int64_t i = 0; i < sources; i++) {
    weights[i] /= sum;
    for (int64_t k = 0; k < columns; k++) y[k] += weights[i] * source(c, i, row, k);
  }
}

static void follows_its_formula_on_awkward_shapes(void **state) {
  (void)state;
  for (int s = 0; s < NUM_SHAPES; s++) {
    ot_case c = mix_case(shapes[s]);
    const int64_t rows = shapes[s].rows, columns = shapes[s].columns;
    const int64_t sources = shapes[s].stack + shapes[s].last;
    double *const weights = calloc((size_t)(rows * sources), sizeof *weights);
    double *const y = calloc((size_t)(rows * columns), sizeof *y);
    ot_case_run(&c);
    for (int64_t row = 0; row < rows; row++) {
      expect_row(&c, row, sources, weights + row * sources, y + row * columns);
    }
    ot_case_expect(&c.out[0], y, 1e-12, "y");
    ot_case_expect(&c.out[1], weights, 1e-12, "weights");
    free(weights);
    free(y);
    ot_case_destroy(&c);
  }
}

// All sources get the same weight: the mean, for any number of them.
static void a_zero_query_gives_the_mean(void **state) {
  (void)state;
  ot_case c = mix_case((shape){4, 6, 33, true});
  ot_case_fill(&c.in[2], 1, 0, 0);
  ot_case_run(&c);
  for (int64_t i = 0; i < 6 * 5; i++) {
    if (fabs(ot_case_get(&c.out[1], i) - 0.2) > 1e-15) fail_msg("weight %lld", (long long)i);
  }
  ot_case_destroy(&c);
}

// One source without a query passes unchanged, and so does its gradient.
static void one_source_passes(void **state) {
  (void)state;
  const ot_tensor_type stack = {.dtype = OT_F64, .rank = 3, .dim = {1, 6, 33}};
  ot_case c = {.kind = OT_OP_RESIDUAL_ATTENTION,
               .attributes = {.threads = 2, .compute = OT_F64, .epsilon = 1e-3},
               .types = {.in = {stack}}};
  ot_case_create(&c);
  ot_case_run(&c);
  for (int64_t i = 0; i < 6 * 33; i++) {
    assert_true(ot_case_get(&c.out[0], i) == ot_case_get(&c.in[0], i));
  }
  ot_case_check_gradients(&c, 1e-5, 1e-9);
  ot_case_destroy(&c);
}

// Widely spread scores neither overflow nor underflow.
static void large_scores_choose_one_source(void **state) {
  (void)state;
  ot_case c = mix_case((shape){2, 1, 4, true});
  for (int64_t i = 0; i < 4; i++) {
    ot_case_set(&c.in[0], i, -1);
    ot_case_set(&c.in[0], 4 + i, 1);
    ot_case_set(&c.in[1], i, 2);
    ot_case_set(&c.in[2], i, 1e6);
  }
  ot_case_set(&c.in[1], 0, -2);
  ot_case_run(&c);
  const double expected[] = {1, 1, 1, 1};
  ot_case_expect(&c.out[0], expected, 1e-15, "y");
  ot_case_destroy(&c);
}

static void gradients_agree_with_differences(void **state) {
  (void)state;
  static const shape small[] = {
      {1, 3, 5, false}, {1, 2, 5, true}, {3, 4, 9, true}, {4, 20, 6, false}};
  for (int s = 0; s < (int)(sizeof small / sizeof small[0]); s++) {
    ot_case c = mix_case(small[s]);
    ot_case_check_gradients(&c, 1e-5, 1e-7);
    ot_case_destroy(&c);
  }
}

// The gradient op of a mix that has run.
static ot_case grad_case(shape s) {
  ot_case forward = mix_case(s);
  const ot_tensor_type row = ot_type_matrix(OT_F64, s.rows, s.columns);
  const ot_tensor_type last = s.last ? row : (ot_tensor_type){0};
  const ot_tensor_type statistic = forward.types.out[1];
  ot_case c = {.kind = OT_OP_RESIDUAL_ATTENTION_GRAD,
               .attributes = forward.attributes,
               .types = {.in = {forward.types.in[0], row, forward.types.in[0], last,
                                forward.types.in[2], statistic, statistic, last},
                         .out = {{0}, {0}, forward.types.in[2]}},
               .statistic_inputs = 1u << 5 | 1u << 6};
  ot_case_run(&forward);
  ot_case_create(&c);
  for (int i = 0; i < 3; i++) {
    for (int64_t k = 0; k < ot_type_elements(&forward.in[i].type); k++) {
      ot_case_set(&c.in[2 + i], k, ot_case_get(&forward.in[i], k));
    }
  }
  for (int i = 0; i < 2; i++) {
    for (int64_t k = 0; k < ot_type_elements(&statistic); k++) {
      ot_case_set(&c.in[5 + i], k, ot_case_get(&forward.out[1 + i], k));
    }
  }
  ot_case_destroy(&forward);
  return c;
}

static void narrow_types_and_threads_agree(void **state) {
  (void)state;
  for (int s = 1; s < NUM_SHAPES; s++) {
    ot_case c = mix_case(shapes[s]);
    ot_case_run(&c);
    ot_case_check_precisions(&c, 2e-5, 2e-2);
    ot_case_destroy(&c);
  }
  ot_case g = grad_case((shape){3, 200, 130, true});
  ot_case_run(&g);
  ot_case_check_precisions(&g, 2e-5, 2e-2);
  ot_case_destroy(&g);
}

static void the_gradient_of_the_stack_may_be_where_its_partial_is(void **state) {
  (void)state;
  ot_case c = grad_case((shape){3, 17, 130, true});
  const int64_t elements = ot_type_elements(&c.types.out[0]);
  double *const apart = calloc((size_t)elements, sizeof *apart);
  ot_case_run(&c);
  for (int64_t i = 0; i < elements; i++) apart[i] = ot_case_get(&c.out[0], i);
  ot_case_run_in_place(&c);
  ot_case_expect(&c.out[0], apart, 0, "dstack");
  free(apart);
  ot_case_destroy(&c);
}

static void refuses_sources_of_unequal_shapes(void **state) {
  (void)state;
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F64};
  ot_op_types types = {.in = {{.dtype = OT_F64, .rank = 3, .dim = {2, 4, 8}},
                              ot_type_matrix(OT_F64, 5, 8),
                              ot_type_vector(OT_F64, 8)}};
  assert_int_equal(ot_op_infer(OT_OP_RESIDUAL_ATTENTION, &attributes, &types), OT_BUG);
  types.in[1] = ot_type_matrix(OT_F64, 4, 8);
  assert_int_equal(ot_op_infer(OT_OP_RESIDUAL_ATTENTION, &attributes, &types), OT_OK);
  assert_int_equal(types.out[1].dim[1], 3);
  types.in[2] = ot_type_vector(OT_F64, 7);
  assert_int_equal(ot_op_infer(OT_OP_RESIDUAL_ATTENTION, &attributes, &types), OT_BUG);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(follows_its_formula_on_awkward_shapes),
      cmocka_unit_test(a_zero_query_gives_the_mean),
      cmocka_unit_test(one_source_passes),
      cmocka_unit_test(large_scores_choose_one_source),
      cmocka_unit_test(gradients_agree_with_differences),
      cmocka_unit_test(narrow_types_and_threads_agree),
      cmocka_unit_test(the_gradient_of_the_stack_may_be_where_its_partial_is),
      cmocka_unit_test(refuses_sources_of_unequal_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
