// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Nonlinearities and gated forms against PyTorch and the formulas, gradients against
// differences, in place and out of place, for storage types, threads and shapes.
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

static const shape shapes[] = {{1, 1}, {5, 7}, {137, 130}, {3, 2051}, {19, 1056}};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct torch_function {
  ot_activation activation;
  const double *y, *dx;
} torch_function;

static const torch_function functions[] = {
    {OT_ACTIVATION_GELU, torch_gelu_y, torch_gelu_dx},
    {OT_ACTIVATION_GELU_TANH, torch_gelu_tanh_y, torch_gelu_tanh_dx},
    {OT_ACTIVATION_SILU, torch_silu_y, torch_silu_dx},
    {OT_ACTIVATION_RELU, torch_relu_y, torch_relu_dx},
};

enum { NUM_FUNCTIONS = sizeof functions / sizeof functions[0] };

static ot_case case_of(ot_op_kind kind, ot_activation activation, shape s) {
  const bool grad = kind == OT_OP_ACTIVATION_GRAD || kind == OT_OP_GLU_GRAD;
  const bool gated = kind == OT_OP_GLU || kind == OT_OP_GLU_GRAD;
  const ot_tensor_type x = ot_type_matrix(OT_F64, s.rows, gated ? 2 * s.columns : s.columns);
  const ot_tensor_type y = ot_type_matrix(OT_F64, s.rows, s.columns);
  ot_case c = {.kind = kind,
               .attributes = {.threads = 2, .compute = OT_F64, .activation = activation},
               .types = {.in = {grad ? y : x, grad ? x : (ot_tensor_type){0}}}};
  ot_case_create(&c);
  ot_case_fill(&c.in[grad ? 1 : 0], 5, 2, 0);
  return c;
}

static void set_doubled_pattern(const ot_tensor *tensor, int64_t stream) {
  ot_case_pattern(tensor, stream);
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    ot_case_set(tensor, i, 2 * ot_case_get(tensor, i));
  }
}

static void every_function_agrees_with_torch(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FUNCTIONS; f++) {
    ot_case c = case_of(OT_OP_ACTIVATION, functions[f].activation, (shape){4, 10});
    set_doubled_pattern(&c.in[0], 1);
    ot_case_run(&c);
    ot_case_expect(&c.out[0], functions[f].y, 1e-14, "y");
    ot_case_destroy(&c);
    c = case_of(OT_OP_ACTIVATION_GRAD, functions[f].activation, (shape){4, 10});
    ot_case_pattern(&c.in[0], 2);
    set_doubled_pattern(&c.in[1], 1);
    ot_case_run(&c);
    ot_case_expect(&c.out[0], functions[f].dx, 1e-14, "dx");
    ot_case_run_in_place(&c);
    ot_case_expect(&c.out[0], functions[f].dx, 1e-14, "dx in place");
    ot_case_destroy(&c);
  }
}

static void gated_form_agrees_with_torch(void **state) {
  (void)state;
  ot_case c = case_of(OT_OP_GLU, OT_ACTIVATION_SILU, (shape){2, 10});
  set_doubled_pattern(&c.in[0], 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_swiglu_y, 1e-14, "y");
  ot_case_destroy(&c);
  c = case_of(OT_OP_GLU_GRAD, OT_ACTIVATION_SILU, (shape){2, 10});
  ot_case_pattern(&c.in[0], 2);
  set_doubled_pattern(&c.in[1], 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_swiglu_dx, 1e-14, "dx");
  ot_case_destroy(&c);
}

static double formula(ot_activation activation, double x) {
  switch (activation) {
    case OT_ACTIVATION_GELU:
      return x * erfc(-x / sqrt(2)) / 2;
    case OT_ACTIVATION_GELU_TANH:
      return x * (1 + tanh(sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x))) / 2;
    case OT_ACTIVATION_SILU:
      return x / (1 + exp(-x));
    case OT_ACTIVATION_RELU:
      return x > 0 ? x : 0;
  }
  return NAN;
}

static void follows_its_formula_on_awkward_shapes(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES * NUM_FUNCTIONS; i++) {
    const shape s = shapes[i / NUM_FUNCTIONS];
    const ot_activation f = functions[i % NUM_FUNCTIONS].activation;
    double *const y = calloc((size_t)(s.rows * s.columns), sizeof *y);
    ot_case c = case_of(OT_OP_ACTIVATION, f, s);
    for (int64_t k = 0; k < s.rows * s.columns; k++) y[k] = formula(f, ot_case_get(&c.in[0], k));
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    ot_case_destroy(&c);
    c = case_of(OT_OP_GLU, f, s);
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      const int64_t gate = k / s.columns * 2 * s.columns + k % s.columns;
      y[k] = formula(f, ot_case_get(&c.in[0], gate)) * ot_case_get(&c.in[0], gate + s.columns);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y of the gated form");
    ot_case_destroy(&c);
    free(y);
  }
}

static void gradients_are_those_of_the_forward_kernels(void **state) {
  (void)state;
  for (int f = 0; f < NUM_FUNCTIONS; f++) {
    ot_case c = case_of(OT_OP_ACTIVATION, functions[f].activation, (shape){5, 7});
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_destroy(&c);
    c = case_of(OT_OP_GLU, functions[f].activation, (shape){5, 7});
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_destroy(&c);
  }
}

static void gradients_write_the_output_again_with_its_bits(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES * NUM_FUNCTIONS; i++) {
    const ot_activation f = functions[i % NUM_FUNCTIONS].activation;
    ot_case c = case_of(OT_OP_ACTIVATION, f, shapes[i / NUM_FUNCTIONS]);
    ot_case_check_written_again(&c);
    ot_case_destroy(&c);
    c = case_of(OT_OP_GLU, f, shapes[i / NUM_FUNCTIONS]);
    ot_case_check_written_again(&c);
    ot_case_destroy(&c);
  }
}

// ---- the clamped gated form ----

static const double ALPHA = 1.702, LIMIT = 1.5;

static ot_case clamped_case(ot_op_kind kind, shape s) {
  ot_case c = case_of(kind, OT_ACTIVATION_SILU, s);
  c.attributes.glu_alpha = ALPHA;
  c.attributes.glu_limit = LIMIT;
  return c;
}

static double clamped(double gate, double up) {
  const double g = fmin(gate, LIMIT);
  return g / (1 + exp(-ALPHA * g)) * (fmax(fmin(up, LIMIT), -LIMIT) + 1);
}

static void clamped_form_follows_its_formula(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = clamped_case(OT_OP_GLU, s);
    double *const y = calloc((size_t)(s.rows * s.columns), sizeof *y);
    int bounded = 0;
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      const int64_t gate = k / s.columns * 2 * s.columns + k % s.columns;
      const double up = ot_case_get(&c.in[0], gate + s.columns);
      y[k] = clamped(ot_case_get(&c.in[0], gate), up);
      bounded += fabs(up) > LIMIT;
    }
    assert_true(s.rows == 1 || (bounded > 0 && bounded < s.rows * s.columns));
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    ot_case_check_precisions(&c, 2e-6, 2e-2);
    free(y);
    ot_case_destroy(&c);
  }
}

static void clamped_form_has_the_gradients_of_its_kernel(void **state) {
  (void)state;
  for (int scaled = 0; scaled < 2; scaled++) {
    ot_case c = {.kind = OT_OP_GLU,
                 .attributes = {.threads = 2,
                                .compute = OT_F64,
                                .activation = OT_ACTIVATION_SILU,
                                .glu_alpha = ALPHA,
                                .glu_limit = LIMIT},
                 .types = {.in = {ot_type_matrix(OT_F64, 9, 14)}},
                 .statistic_inputs = 1u << 1};
    if (scaled) c.types.in[1] = ot_type_vector(OT_F64, 9);
    ot_case_create(&c);
    ot_case_fill(&c.in[0], 5, 2, 0);
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_check_written_again(&c);
    ot_case_destroy(&c);
    c = clamped_case(OT_OP_GLU_GRAD, (shape){137, 130});
    ot_case_check_precisions(&c, 3e-6, 2e-2);
    ot_case_destroy(&c);
  }
}

static void precisions_and_threads_agree(void **state) {
  (void)state;
  static const ot_op_kind kinds[] = {OT_OP_ACTIVATION, OT_OP_ACTIVATION_GRAD, OT_OP_GLU,
                                     OT_OP_GLU_GRAD};
  for (int i = 0; i < 4 * NUM_FUNCTIONS; i++) {
    const ot_activation f = functions[i % NUM_FUNCTIONS].activation;
    ot_case c = case_of(kinds[i / NUM_FUNCTIONS], f, shapes[1 + i % (NUM_SHAPES - 1)]);
    ot_case_check_precisions(&c, 5e-7, 4e-3);
    ot_case_destroy(&c);
  }
}

static void far_arguments_saturate_without_nan(void **state) {
  (void)state;
  static const double far[] = {-1e30, -1000, -89, 89, 1000, 1e12};
  for (int f = 0; f < NUM_FUNCTIONS; f++) {
    ot_case c = case_of(OT_OP_ACTIVATION, functions[f].activation, (shape){1, 6});
    ot_case clone;
    for (int i = 0; i < 6; i++) ot_case_set(&c.in[0], i, far[i]);
    ot_case_clone(&c, OT_F32, OT_F32, &clone);
    ot_case_run(&clone);
    for (int i = 0; i < 6; i++) {
      const double expected = far[i] < 0 ? 0 : far[i];
      const double found = ot_case_get(&clone.out[0], i);
      if (!(fabs(found - expected) <= 1e-6 * fabs(far[i]))) {
        fail_msg("f(%g) is %g, expected %g", far[i], found, expected);
      }
    }
    ot_case_destroy(&clone);
    ot_case_destroy(&c);
  }
}

static void refuses_a_gate_without_its_half(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 7)}};
  const ot_op_attributes attributes = {.compute = OT_F32};
  assert_int_equal(ot_op_infer(OT_OP_GLU, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "glu: x has 7 columns, expected gate|up, an even number");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_function_agrees_with_torch),
      cmocka_unit_test(gated_form_agrees_with_torch),
      cmocka_unit_test(follows_its_formula_on_awkward_shapes),
      cmocka_unit_test(gradients_are_those_of_the_forward_kernels),
      cmocka_unit_test(gradients_write_the_output_again_with_its_bits),
      cmocka_unit_test(clamped_form_follows_its_formula),
      cmocka_unit_test(clamped_form_has_the_gradients_of_its_kernel),
      cmocka_unit_test(precisions_and_threads_agree),
      cmocka_unit_test(far_arguments_saturate_without_nan),
      cmocka_unit_test(refuses_a_gate_without_its_half),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
