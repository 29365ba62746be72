// SPDX-License-Identifier: Apache-2.0
// ctest: device
// ctest: variant=own OT_PRODUCTS=own OT_TEST_CASES=bias_after*
// ctest: variant=other emulated OT_SHIM_LT_ORDER=reversed OT_TEST_CASES=bias_after*
// run: serial. Addition, dropout, maxima, conversions and clearing: values, masks word for word
// against the generator, in place and out of place, for storage types, threads and shapes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fixtures/torch_values.h"
#include "support/op_case.h"
#include "support/op_device.h"

static ot_case add_case(int64_t rows, int64_t columns) {
  const ot_tensor_type type = ot_type_matrix(OT_F64, rows, columns);
  ot_case c = {.kind = OT_OP_ADD,
               .attributes = {.threads = 2, .compute = OT_F64},
               .types = {.in = {type, type}}};
  ot_case_create(&c);
  return c;
}

static void adds_in_place_and_out_of_place(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 7, 6001};
  for (int s = 0; s < 3; s++) {
    ot_case c = add_case(3, columns[s]);
    double *const y = calloc((size_t)(3 * columns[s]), sizeof *y);
    for (int64_t i = 0; i < 3 * columns[s]; i++) {
      y[i] = ot_case_get(&c.in[0], i) + ot_case_get(&c.in[1], i);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 0, "y");
    ot_case_run_in_place(&c);
    ot_case_expect(&c.out[0], y, 0, "y in place");
    ot_case_check_precisions(&c, 1e-7, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void both_summands_get_the_gradient(void **state) {
  (void)state;
  ot_case c = add_case(3, 4);
  ot_case_check_gradients(&c, 1e-3, 1e-10);
  ot_case_destroy(&c);
}

// ---- bias ----

static ot_case bias_case(int64_t rows, int64_t columns, bool bias, bool residual) {
  const ot_tensor_type type = ot_type_matrix(OT_F64, rows, columns);
  ot_case c = {
      .kind = OT_OP_BIAS, .attributes = {.threads = 2, .compute = OT_F64}, .types = {.in = {type}}};
  if (bias) c.types.in[1] = ot_type_vector(OT_F64, columns);
  if (residual) c.types.in[2] = type;
  ot_case_create(&c);
  return c;
}

static void adds_bias_and_residual_to_a_sum(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 7, 2050};
  for (int n = 0; n < 12; n++) {
    const int64_t C = columns[n / 4];
    const bool has_bias = n % 2 != 0;
    const bool has_residual = n / 2 % 2 != 0;
    ot_case c = bias_case(9, C, has_bias, has_residual);
    double *const y = calloc((size_t)(9 * C), sizeof *y);
    for (int64_t i = 0; i < 9 * C; i++) {
      const double b = has_bias ? ot_case_get(&c.in[1], i % C) : 0;
      const double r = has_residual ? ot_case_get(&c.in[2], i) : 0;
      y[i] = ot_case_get(&c.in[0], i) + (r + b);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 0, "y");
    ot_case_run_in_place(&c);
    ot_case_expect(&c.out[0], y, 0, "y in place");
    ot_case_check_precisions(&c, 1e-7, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

// A product with bias and residual as one op, and its parts as two: the product alone and `c`.
typedef struct bias_pair {
  ot_case fused, product, c;
} bias_pair;

static ot_case product_case(int64_t rows, int64_t depth, int64_t columns) {
  return (ot_case){
      .kind = OT_OP_LINEAR,
      .attributes = {.threads = 2, .compute = OT_F32},
      .types = {.in = {ot_type_matrix(OT_F32, rows, depth), ot_type_matrix(OT_F32, columns, depth),
                       ot_type_vector(OT_F32, columns), ot_type_matrix(OT_F32, rows, columns)}}};
}

static bias_pair run_bias_pair(int64_t rows, int64_t depth, int64_t columns) {
  bias_pair p = {.fused = product_case(rows, depth, columns)};
  ot_case_create(&p.fused);
  p.product = p.fused;
  p.product.types.in[2] = p.product.types.in[3] = (ot_tensor_type){0};
  ot_case_create(&p.product);
  ot_case_run(&p.fused);
  ot_case_run(&p.product);
  p.c =
      (ot_case){.kind = OT_OP_BIAS,
                .attributes = p.fused.attributes,
                .types = {.in = {p.fused.types.out[0], p.fused.types.in[2], p.fused.types.in[3]}}};
  ot_case_create(&p.c);
  const ot_tensor *const from[] = {&p.product.out[0], &p.fused.in[2], &p.fused.in[3]};
  for (int i = 0; i < 3; i++) {
    memcpy(p.c.in[i].data, from[i]->data, (size_t)ot_type_bytes(&from[i]->type));
  }
  ot_case_run(&p.c);
  return p;
}

static void release_bias_pair(bias_pair *p) {
  ot_case_destroy(&p->c);
  ot_case_destroy(&p->product);
  ot_case_destroy(&p->fused);
}

// A GEMM on one rank must not depend on whether the bias is a separate op.
static void bias_after_a_product_has_the_bits_of_linear(void **state) {
  (void)state;
  if (op_device_has_library()) skip();
  bias_pair p = run_bias_pair(5, 3, 300);
  assert_memory_equal(p.c.out[0].data, p.fused.out[0].data,
                      (size_t)ot_type_bytes(&p.c.types.out[0]));
  release_bias_pair(&p);
}

// The library has an order of its own for the terms, and an algorithm for each product: n terms in
// any order have an error below n units of 2^-24 of the sum of their magnitudes.
static void bias_after_a_product_is_linear_within_the_rounding_of_sums(void **state) {
  (void)state;
  enum { R = 5, C = 3, O = 300 };
  bias_pair p = run_bias_pair(R, C, O);
  const ot_tensor *const in = p.fused.in;
  for (int i = 0; i < R * O; i++) {
    double size = fabs(ot_case_get(&in[2], i % O)) + fabs(ot_case_get(&in[3], i));
    for (int k = 0; k < C; k++) {
      size += fabs(ot_case_get(&in[0], i / O * C + k) * ot_case_get(&in[1], i % O * C + k));
    }
    const double bound = 2 * (C + 2) * size * 0x1p-24;
    const double one = ot_case_get(&p.fused.out[0], i), two = ot_case_get(&p.c.out[0], i);
    if (!(fabs(one - two) <= bound)) fail_msg("[%d] is %.9g, and in two steps %.9g", i, one, two);
  }
  release_bias_pair(&p);
}

static void bias_hands_its_gradient_to_all_three(void **state) {
  (void)state;
  for (int n = 0; n < 4; n++) {
    ot_case c = bias_case(37, 4, n % 2 != 0, n / 2 != 0);
    ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

// ---- gate ----

static ot_case gate_case(int64_t rows, int64_t columns, bool residual) {
  const ot_tensor_type type = ot_type_matrix(OT_F64, rows, columns);
  ot_case c = {.kind = OT_OP_GATE,
               .attributes = {.threads = 2, .compute = OT_F64},
               .types = {.in = {type, ot_type_matrix(OT_F64, rows, 1)}},
               .statistic_inputs = 1u << 1};
  if (residual) c.types.in[2] = type;
  ot_case_create(&c);
  return c;
}

static void a_gate_multiplies_each_row_by_its_sigmoid(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 7, 2050};
  for (int n = 0; n < 6; n++) {
    const int64_t C = columns[n / 2];
    ot_case c = gate_case(9, C, n % 2 != 0);
    double *const y = calloc((size_t)(9 * C), sizeof *y);
    for (int64_t i = 0; i < 9 * C; i++) {
      const double r = n % 2 != 0 ? ot_case_get(&c.in[2], i) : 0;
      y[i] = r + ot_case_get(&c.in[0], i) / (1 + exp(-ot_case_get(&c.in[1], i / C)));
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-15, "y");
    ot_case_run_in_place(&c);
    ot_case_expect(&c.out[0], y, 1e-15, "y in place");
    ot_case_check_precisions(&c, 1e-6, 1e-2);
    free(y);
    ot_case_destroy(&c);
  }
}

static void a_gate_has_the_gradients_of_differences(void **state) {
  (void)state;
  for (int n = 0; n < 2; n++) {
    ot_case c = gate_case(5, 6, n == 1);
    ot_case_check_gradients(&c, 1e-4, 1e-9);
    ot_case_destroy(&c);
  }
}

static void a_gate_agrees_with_pytorch(void **state) {
  (void)state;
  ot_case c = gate_case(3, 7, true);
  for (int i = 0; i < 3; i++) ot_case_pattern(&c.in[i], i + 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], torch_gate_y, 1e-14, "y");
  ot_case grad = {.kind = OT_OP_GATE_GRAD,
                  .attributes = c.attributes,
                  .types = {.in = {c.types.in[0], c.types.in[0], c.types.in[1]}}};
  ot_case_create(&grad);
  ot_case_pattern(&grad.in[0], 4);
  ot_case_pattern(&grad.in[1], 1);
  ot_case_pattern(&grad.in[2], 2);
  ot_case_run(&grad);
  ot_case_expect(&grad.out[0], torch_gate_dx, 1e-14, "dx");
  ot_case_expect(&grad.out[1], torch_gate_dlogits, 1e-14, "dlogits");
  ot_case_destroy(&grad);
  ot_case_destroy(&c);
}

// ---- dropout ----

enum { SEQUENCE = 5, SAMPLES = 3 };

static const int64_t sample_ids[SAMPLES] = {7, 123456789012345, 0};

static ot_case dropout_case(ot_op_kind kind, int64_t columns, double probability) {
  ot_case c = {.kind = kind,
               .attributes = {.threads = 2,
                              .compute = OT_F64,
                              .sequence_length = SEQUENCE,
                              .dropout = probability,
                              .seed = 99,
                              .rng_stream = 0xfeedfacecafef00d},
               .types = {.in = {ot_type_matrix(OT_F64, SEQUENCE * SAMPLES, columns),
                                ot_type_vector(OT_I64, SAMPLES)}}};
  ot_case_create(&c);
  for (int b = 0; b < SAMPLES; b++) ((int64_t *)c.in[1].data)[b] = sample_ids[b];
  return c;
}

static bool kept(const ot_op_attributes *attributes, int64_t row, int64_t column) {
  const uint64_t position = (uint64_t)(row % SEQUENCE);
  const ot_rng_block block =
      ot_rng_philox(attributes->seed, attributes->rng_stream,
                    position << 32 | (uint64_t)(column / 4), (uint64_t)sample_ids[row / SEQUENCE]);
  return block.word[column % 4] * 0x1p-32 >= attributes->dropout;
}

static void dropout_follows_the_generator(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 6, 67, 2050};
  static const ot_op_kind kinds[] = {OT_OP_DROPOUT, OT_OP_DROPOUT_GRAD};
  for (int s = 0; s < 8; s++) {
    const int64_t n = columns[s / 2];
    ot_case c = dropout_case(kinds[s % 2], n, 0.25);
    double *const y = calloc((size_t)(SEQUENCE * SAMPLES * n), sizeof *y);
    for (int64_t i = 0; i < SEQUENCE * SAMPLES * n; i++) {
      y[i] = kept(&c.attributes, i / n, i % n) ? ot_case_get(&c.in[0], i) / 0.75 : 0;
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-15, "y");
    ot_case_run_in_place(&c);
    ot_case_expect(&c.out[0], y, 1e-15, "y in place");
    ot_case_check_precisions(&c, 2e-7, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void dropout_keeps_the_mean_and_the_share(void **state) {
  (void)state;
  ot_case c = dropout_case(OT_OP_DROPOUT, 4096, 0.1);
  const int64_t elements = ot_type_elements(&c.in[0].type);
  double sum = 0;
  for (int64_t i = 0; i < elements; i++) ot_case_set(&c.in[0], i, 1);
  ot_case_run(&c);
  for (int64_t i = 0; i < elements; i++) sum += ot_case_get(&c.out[0], i);
  // Standard deviation of the mean: sqrt(0.1 / 0.9 / 61440) = 0.0013.
  if (fabs(sum / (double)elements - 1) > 0.005) fail_msg("mean %g", sum / (double)elements);
  ot_case_destroy(&c);
}

static void dropout_gradient_uses_the_same_mask(void **state) {
  (void)state;
  ot_case c = dropout_case(OT_OP_DROPOUT, 3, 0.5);
  ot_case_check_gradients(&c, 1e-3, 1e-10);
  ot_case_destroy(&c);
}

// A rank's part of dropout over BATCH sequences of `length` rows.
typedef struct part {
  ot_context_parallel context;
  int context_size, context_index;
  int64_t first_row, rows;  // of the rows of the rank's shards, all sequences
} part;

enum { BATCH = 2, LONG = 24, WIDTH = 9 };

static ot_case part_case(ot_op_kind kind, part p) {
  const int pieces = p.context_size > 1 ? p.context_size : 1;
  ot_case c = {
      .kind = kind,
      .attributes = {.threads = 2,
                     .compute = OT_F64,
                     .sequence_length = LONG / pieces,
                     .dropout = 0.5,
                     .seed = 5,
                     .rng_stream = 77,
                     .first_row = p.first_row,
                     .context = p.context,
                     .context_size = p.context_size,
                     .context_index = p.context_index},
      .types = {.in = {ot_type_matrix(OT_F64, p.rows, WIDTH), ot_type_vector(OT_I64, BATCH)}}};
  ot_case_create(&c);
  for (int b = 0; b < BATCH; b++) ((int64_t *)c.in[1].data)[b] = sample_ids[b];
  for (int64_t e = 0; e < p.rows * WIDTH; e++) ot_case_set(&c.in[0], e, 1);
  ot_case_run(&c);
  return c;
}

// Position in its sequence of row `i` of a rank's rows, from the order of the shards.
static int64_t place_of(part p, int64_t i) {
  if (p.context_size <= 1) return i;
  if (p.context == OT_CONTEXT_ULYSSES) return p.context_index * (LONG / p.context_size) + i;
  const int64_t piece = LONG / (2 * p.context_size);
  const int64_t mirrored = 2 * p.context_size - 1 - p.context_index;
  return i < piece ? p.context_index * piece + i : mirrored * piece + i - piece;
}

static void expect_part_of_mask(const ot_case *whole, part p) {
  const int64_t length = p.context_size > 1 ? LONG / p.context_size : LONG;
  static const ot_op_kind kinds[] = {OT_OP_DROPOUT, OT_OP_DROPOUT_GRAD};
  for (int n = 0; n < 2; n++) {
    ot_case c = part_case(kinds[n], p);
    for (int64_t e = 0; e < p.rows * WIDTH; e++) {
      const int64_t row = p.first_row + e / WIDTH;
      const int64_t whole_row = row / length * LONG + place_of(p, row % length);
      const double expected = ot_case_get(&whole->out[0], whole_row * WIDTH + e % WIDTH);
      if (ot_case_get(&c.out[0], e) == expected) continue;
      fail_msg("context %d, shard %d of %d, row %d + %d: different mask", (int)p.context,
               p.context_index, p.context_size, (int)p.first_row, (int)(e / WIDTH));
    }
    ot_case_destroy(&c);
  }
}

static void expect_parts_of_mask(const ot_case *whole, int tp, int cp) {
  const int64_t rows = BATCH * LONG / cp;
  for (int n = 0; n < 2 * cp * tp; n++) {
    const int i = n / (2 * cp);
    const int64_t first = rows * i / tp;
    expect_part_of_mask(whole, (part){.context = n % 2 ? OT_CONTEXT_ULYSSES : OT_CONTEXT_RING,
                                      .context_size = cp,
                                      .context_index = n / 2 % cp,
                                      .first_row = first,
                                      .rows = rows * (i + 1) / tp - first});
  }
}

// tp shards rows, across sequences if necessary; cp shards sequences, in two layouts.
static void a_mask_does_not_depend_on_how_rows_are_cut(void **state) {
  (void)state;
  ot_case whole = part_case(OT_OP_DROPOUT, (part){.rows = BATCH * LONG});
  for (int n = 0; n < 16; n++) expect_parts_of_mask(&whole, n / 4 + 1, n % 4 + 1);
  ot_case_destroy(&whole);
}

static void dropout_refuses_rows_that_no_sequence_has(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 9, 4), ot_type_vector(OT_I64, 2)}};
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .sequence_length = 6};
  assert_int_equal(ot_op_infer(OT_OP_DROPOUT, &attributes, &types), OT_OK);
  attributes.first_row = 4;
  assert_int_equal(ot_op_infer(OT_OP_DROPOUT, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "dropout: rows 4 to 13 of 2 sequences of 6");
  attributes.first_row = 0;
  attributes.sequence_length = 5;
  attributes.context_size = 2;
  assert_int_equal(ot_op_infer(OT_OP_DROPOUT, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "dropout: 5 tokens of a sequence are not two blocks of equal length");
}

// ---- maxima, conversions, clearing ----

static void absmax_keeps_the_largest_so_far(void **state) {
  (void)state;
  ot_case c = {
      .kind = OT_OP_ABSMAX,
      .attributes = {.threads = 2, .compute = OT_F64},
      .types = {.in = {ot_type_matrix(OT_F64, 25, 700)}, .out = {ot_type_vector(OT_F64, 1)}}};
  ot_case_create(&c);
  ot_case_set(&c.in[0], 2999, -9.5);
  ot_case_run(&c);
  assert_true(ot_case_get(&c.out[0], 0) == 9.5);
  ot_case_set(&c.out[0], 0, 11);
  ot_case_run(&c);
  assert_true(ot_case_get(&c.out[0], 0) == 11);
  const int64_t places[] = {12, 700 * 25 - 1};  // in vector code and in its remainder loop
  for (int i = 0; i < OT_COUNT(places); i++) {
    const double before = ot_case_get(&c.in[0], places[i]);
    ot_case_set(&c.in[0], places[i], NAN);
    ot_case_run(&c);
    assert_true(isinf(ot_case_get(&c.out[0], 0)));
    ot_case_set(&c.in[0], places[i], before);
    ot_case_set(&c.out[0], 0, 0);
  }
  ot_case_set(&c.out[0], 0, 0);
  ot_case_check_precisions(&c, 0, 0);
  ot_case_destroy(&c);
}

// Expected value of `value` in type `to`, from the definition of the types.
static double rounded(double value, ot_dtype to) {
  if (to == OT_F64) return value;
  if (to == OT_F32) return (double)(float)value;
  return (double)ot_bf16_to_float(ot_bf16_from_float((float)value));
}

static void cast_between(ot_dtype from, ot_dtype to, ot_dtype compute) {
  ot_case c = {.kind = OT_OP_CAST,
               .attributes = {.threads = 2, .compute = compute},
               .types = {.in = {ot_type_vector(from, 1500)}, .out = {ot_type_vector(to, 1500)}}};
  ot_case_create(&c);
  for (int64_t i = 0; i < 1500; i++) {
    ot_case_set(&c.in[0], i,
                (1 + (double)i * 0x1.23456789abcdp-9) * pow(2, (double)(i % 200) - 100));
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < 1500; i++) {
    const double expected = rounded(ot_case_get(&c.in[0], i), to);
    if (ot_case_get(&c.out[0], i) == expected) continue;
    fail_msg("%s to %s: element %d is %.17g, expected %.17g", ot_dtype_name(from),
             ot_dtype_name(to), (int)i, ot_case_get(&c.out[0], i), expected);
  }
  ot_case_destroy(&c);
}

static void casts_round_once_whatever_the_compute_type(void **state) {
  (void)state;
  static const ot_dtype types[] = {OT_F32, OT_F64, OT_BF16};
  for (int i = 0; i < 18; i++) {
    cast_between(types[i % 3], types[i / 3 % 3], i < 9 ? OT_F32 : OT_F64);
  }
}

static void rounds_bf16_ties_to_even(void **state) {
  (void)state;
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  static const double from[] = {1 + 0x1p-8, 1 + 0x1.8p-7, 1 + 0x1.0002p-8, -0.0, 3.5e38};
  static const double to[] = {1, 1 + 0x1p-6, 1 + 0x1p-7, -0.0, INFINITY};
  ot_case c = {.kind = OT_OP_CAST,
               .attributes = {.threads = 1, .compute = OT_F32},
               .types = {.in = {ot_type_vector(OT_F32, 5)}, .out = {ot_type_vector(OT_BF16, 5)}}};
  ot_case_create(&c);
  for (int i = 0; i < 5; i++) ot_case_set(&c.in[0], i, from[i]);
  ot_case_run(&c);
  for (int i = 0; i < 5; i++) assert_true(ot_case_get(&c.out[0], i) == to[i]);
  ot_case_destroy(&c);
}

static void cast_back_is_the_gradient(void **state) {
  (void)state;
  const ot_op_info *const info = ot_op_info_of(OT_OP_CAST);
  assert_int_equal(info->num_vjp_steps, 1);
  assert_int_equal(info->vjp[0].op, OT_OP_CAST);
  assert_int_equal(info->vjp[0].out[0].kind, OT_REF_DINPUT);
}

static void zero_clears_every_byte(void **state) {
  (void)state;
  static const ot_dtype types[] = {OT_F32, OT_F64, OT_BF16, OT_I32};
  for (int t = 0; t < 4; t++) {
    ot_case c = {.kind = OT_OP_ZERO,
                 .attributes = {.threads = 3, .compute = OT_F32},
                 .types = {.out = {ot_type_matrix(types[t], 3, 1001)}}};
    ot_case_create(&c);
    ot_case_run(&c);
    const unsigned char *const bytes = c.out[0].data;
    for (int64_t i = 0; i < ot_type_bytes(&c.out[0].type); i++) assert_int_equal(bytes[i], 0);
    ot_case_destroy(&c);
  }
}

static void inverts_a_count_and_keeps_zero(void **state) {
  (void)state;
  static const double n[] = {0, 1, 3, 4096};
  for (int i = 0; i < 4; i++) {
    ot_case c = {.kind = OT_OP_INVERSE,
                 .attributes = {.threads = 1, .compute = i % 2 ? OT_F32 : OT_F64},
                 .types = {.in = {ot_type_vector(OT_F64, 1)}}};
    ot_case_create(&c);
    ot_case_set(&c.in[0], 0, n[i]);
    const double expected = n[i] > 0 ? 1 / n[i] : 0;
    ot_case_run(&c);
    assert_true(ot_case_get(&c.out[0], 0) == expected);
    ot_case_run_in_place(&c);
    assert_true(ot_case_get(&c.out[0], 0) == expected);
    ot_case_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_in_place_and_out_of_place),
      cmocka_unit_test(both_summands_get_the_gradient),
      cmocka_unit_test(adds_bias_and_residual_to_a_sum),
      cmocka_unit_test(bias_after_a_product_has_the_bits_of_linear),
      cmocka_unit_test(bias_after_a_product_is_linear_within_the_rounding_of_sums),
      cmocka_unit_test(bias_hands_its_gradient_to_all_three),
      cmocka_unit_test(a_gate_multiplies_each_row_by_its_sigmoid),
      cmocka_unit_test(a_gate_has_the_gradients_of_differences),
      cmocka_unit_test(a_gate_agrees_with_pytorch),
      cmocka_unit_test(dropout_follows_the_generator),
      cmocka_unit_test(dropout_keeps_the_mean_and_the_share),
      cmocka_unit_test(dropout_gradient_uses_the_same_mask),
      cmocka_unit_test(a_mask_does_not_depend_on_how_rows_are_cut),
      cmocka_unit_test(dropout_refuses_rows_that_no_sequence_has),
      cmocka_unit_test(absmax_keeps_the_largest_so_far),
      cmocka_unit_test(casts_round_once_whatever_the_compute_type),
      cmocka_unit_test(rounds_bf16_ties_to_even),
      cmocka_unit_test(cast_back_is_the_gradient),
      cmocka_unit_test(zero_clears_every_byte),
      cmocka_unit_test(inverts_a_count_and_keeps_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
