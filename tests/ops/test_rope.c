// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Frequencies and rotation against transformers and the formula, the gradient against
// differences, in place and out of place, for storage types, threads and shapes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fixtures/torch_values.h"
#include "ops/rope.h"
#include "support/op_case.h"

typedef struct shape {
  int64_t rows, heads, kv_heads, head_dim, rotary_dim;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 2, 2},    {5, 3, 1, 6, 6},       {9, 4, 2, 10, 4},
    {33, 6, 2, 64, 64}, {3, 2, 1, 1100, 1090}, {50, 4, 2, 64, 48},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0], POSITIONS = 40 };

static ot_op_attributes attributes_of(shape s) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_heads = s.heads,
                            .num_kv_heads = s.kv_heads,
                            .head_dim = s.head_dim,
                            .rotary_dim = s.rotary_dim,
                            .rope_type = OT_ROPE_DEFAULT,
                            .rope_theta = 10000};
}

static void expect_frequencies(const ot_op_attributes *attributes, const double *expected) {
  for (int64_t i = 0; i < attributes->rotary_dim / 2; i++) {
    const double found = ot_rope_frequency(attributes, i);
    if (fabs(found - expected[i]) > 4e-15 * expected[i]) {
      fail_msg("frequency %d is %.17g, expected %.17g", (int)i, found, expected[i]);
    }
  }
}

static void frequencies_agree_with_transformers(void **state) {
  (void)state;
  const ot_op_attributes llama3 = {.rotary_dim = 64,
                                   .rope_type = OT_ROPE_LLAMA3,
                                   .rope_theta = 500000,
                                   .rope_factor = 8,
                                   .rope_low_frequency_factor = 1.5,
                                   .rope_high_frequency_factor = 4,
                                   .rope_original_positions = 256};
  const ot_op_attributes linear = {
      .rotary_dim = 8, .rope_type = OT_ROPE_LINEAR, .rope_theta = 10000, .rope_factor = 4};
  expect_frequencies(&llama3, torch_llama3_frequency);
  expect_frequencies(&linear, torch_linear_frequency);
}

static ot_case table_case(const ot_op_attributes *attributes, ot_dtype compute, int64_t positions) {
  ot_case c = {.kind = OT_OP_ROPE_TABLE, .attributes = *attributes};
  c.attributes.compute = compute;
  c.types.out[0] = (ot_tensor_type){
      .dtype = compute, .rank = 3, .dim = {positions, attributes->rotary_dim / 2, 2}};
  ot_case_create(&c);
  ot_case_run(&c);
  return c;
}

static void table_holds_cosines_and_sines(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const ot_op_attributes attributes = attributes_of(shapes[i]);
    const int64_t pairs = attributes.rotary_dim / 2;
    double *const expected = calloc((size_t)(POSITIONS * pairs * 2), sizeof *expected);
    for (int64_t k = 0; k < POSITIONS * pairs; k++) {
      const double exponent = 2 * (double)(k % pairs) / (double)attributes.rotary_dim;
      const double angle = (double)(k / pairs) * pow(10000, -exponent);
      expected[2 * k] = cos(angle);
      expected[2 * k + 1] = sin(angle);
    }
    ot_case c = table_case(&attributes, OT_F64, POSITIONS);
    ot_case_expect(&c.out[0], expected, 1e-13, "table in float64");
    ot_case_destroy(&c);
    c = table_case(&attributes, OT_F32, POSITIONS);
    ot_case_expect(&c.out[0], expected, 6e-8, "table in float32");
    ot_case_destroy(&c);
    free(expected);
  }
}

static ot_case rope_case(shape s, ot_op_kind kind) {
  ot_case c = {.kind = kind, .attributes = attributes_of(s), .statistic_inputs = 1u << 2};
  ot_case table = table_case(&c.attributes, OT_F64, POSITIONS);
  c.types.in[0] = ot_type_matrix(OT_F64, s.rows, (s.heads + 2 * s.kv_heads) * s.head_dim);
  c.types.in[1] = ot_type_vector(OT_I32, s.rows);
  c.types.in[2] = table.types.out[0];
  ot_case_create(&c);
  for (int64_t i = 0; i < s.rows; i++) ot_case_set(&c.in[1], i, (double)(i * 7 % POSITIONS));
  for (int64_t i = 0; i < ot_type_elements(&c.types.in[2]); i++) {
    ot_case_set(&c.in[2], i, ot_case_get(&table.out[0], i));
  }
  ot_case_destroy(&table);
  return c;
}

// y of one head as the header states it.
static void expect_head(const ot_case *c, int64_t row, int64_t first, double sign, double *y) {
  const int64_t half = c->attributes.rotary_dim / 2;
  const double position = ot_case_get(&c->in[1], row);
  for (int64_t i = 0; i < half; i++) {
    const double angle = sign * position * pow(10000, -(double)i / (double)half);
    const double a = ot_case_get(&c->in[0], first + i);
    const double b = ot_case_get(&c->in[0], first + half + i);
    y[first + i] = a * cos(angle) - b * sin(angle);
    y[first + half + i] = b * cos(angle) + a * sin(angle);
  }
}

static void expect_rotation(ot_op_kind kind, shape s) {
  ot_case c = rope_case(s, kind);
  const int64_t width = c.types.in[0].dim[1];
  double *const y = calloc((size_t)(s.rows * width), sizeof *y);
  for (int64_t k = 0; k < s.rows * width; k++) y[k] = ot_case_get(&c.in[0], k);
  for (int64_t head = 0; head < s.rows * (s.heads + s.kv_heads); head++) {
    const int64_t row = head / (s.heads + s.kv_heads);
    const int64_t first = row * width + head % (s.heads + s.kv_heads) * s.head_dim;
    expect_head(&c, row, first, kind == OT_OP_ROPE ? 1 : -1, y);
  }
  ot_case_run(&c);
  ot_case_expect(&c.out[0], y, 1e-13, "y");
  ot_case_run_in_place(&c);
  ot_case_expect(&c.out[0], y, 1e-13, "y in place");
  ot_case_check_precisions(&c, 5e-7, 4e-3);
  free(y);
  ot_case_destroy(&c);
}

static void rotates_forth_and_back_by_the_formula(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    expect_rotation(OT_OP_ROPE, shapes[i]);
    expect_rotation(OT_OP_ROPE_GRAD, shapes[i]);
  }
}

static void rotates_bf16_rows_in_place(void **state) {
  (void)state;
  ot_case c = rope_case((shape){9, 4, 2, 10, 4}, OT_OP_ROPE);
  ot_case clone;
  ot_case_clone(&c, OT_F32, OT_BF16, &clone);
  ot_case_run(&clone);
  const int64_t elements = ot_type_elements(&clone.out[0].type);
  double *const apart = calloc((size_t)elements, sizeof *apart);
  for (int64_t i = 0; i < elements; i++) apart[i] = ot_case_get(&clone.out[0], i);
  ot_case_run_in_place(&clone);
  ot_case_expect(&clone.out[0], apart, 0, "y in place");
  free(apart);
  ot_case_destroy(&clone);
  ot_case_destroy(&c);
}

static void agrees_with_transformers(void **state) {
  (void)state;
  static const double positions[] = {5, 0, 11};
  ot_case c = rope_case((shape){3, 2, 1, 8, 8}, OT_OP_ROPE);
  c.attributes.rope_type = OT_ROPE_LINEAR;
  c.attributes.rope_factor = 4;
  ot_case table = table_case(&c.attributes, OT_F64, POSITIONS);
  for (int64_t i = 0; i < ot_type_elements(&c.types.in[2]); i++) {
    ot_case_set(&c.in[2], i, ot_case_get(&table.out[0], i));
  }
  for (int i = 0; i < 3; i++) ot_case_set(&c.in[1], i, positions[i]);
  ot_case_pattern(&c.in[0], 3);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_rope_y, 1e-14, "y");
  ot_case_destroy(&table);
  ot_case_destroy(&c);
}

static void gradient_is_that_of_the_forward_kernel(void **state) {
  (void)state;
  ot_case c = rope_case((shape){5, 2, 1, 6, 4}, OT_OP_ROPE);
  ot_case_check_gradients(&c, 1e-3, 1e-9);
  ot_case_destroy(&c);
}

static void refuses_an_odd_rotation(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 2, 16), ot_type_vector(OT_I32, 2)}};
  ot_op_attributes attributes = attributes_of((shape){2, 2, 1, 4, 3});
  types.in[2] = (ot_tensor_type){.dtype = OT_F32, .rank = 3, .dim = {8, 1, 2}};
  assert_int_equal(ot_op_infer(OT_OP_ROPE, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "rope: rotary_dim is 3, expected an even number up to head_dim 4");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frequencies_agree_with_transformers),
      cmocka_unit_test(table_holds_cosines_and_sines),
      cmocka_unit_test(rotates_forth_and_back_by_the_formula),
      cmocka_unit_test(rotates_bf16_rows_in_place),
      cmocka_unit_test(agrees_with_transformers),
      cmocka_unit_test(gradient_is_that_of_the_forward_kernel),
      cmocka_unit_test(refuses_an_odd_rotation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
