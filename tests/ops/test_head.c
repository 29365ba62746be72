// SPDX-License-Identifier: Apache-2.0
// ctest: device full
// run: serial. The head against softmax and cross-entropy written out in float64, its gradients
// against differences of the loss; chunks, masks, ties and storage types.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/head.h"
#include "support/op_case.h"
#include "support/op_device.h"
#include "workspace/cuda_workspace.h"

typedef struct shape {
  int64_t R, C, V, chunk_rows;
  double soft_cap;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 0, 0},     {7, 5, 13, 3, 0},    {10, 8, 33, 4, 0},  {9, 17, 1031, 9, 0},
    {5, 12, 2100, 2, 0}, {130, 6, 50, 64, 0}, {9, 8, 1100, 4, 6},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static const double INVERSE_TOKENS = 0.0625;

static ot_case head_case(ot_op_kind kind, shape s) {
  ot_case c = {
      .kind = kind,
      .attributes = {.threads = 2,
                     .compute = OT_F64,
                     .chunk_rows = s.chunk_rows,
                     .soft_cap = s.soft_cap},
      .types = {.in = {ot_type_matrix(OT_F64, s.R, s.C), ot_type_matrix(OT_F64, s.V, s.C)}}};
  if (kind != OT_OP_HEAD_LOGITS) c.types.in[2] = ot_type_vector(OT_I32, s.R);
  if (kind == OT_OP_HEAD_LOSS) {
    c.roundings = s.chunk_rows > 0 ? (s.R + s.chunk_rows - 1) / s.chunk_rows : 0;
    c.fixed_inputs = 1u << 3;
    c.types.in[3] = ot_type_vector(OT_F64, 1);
    c.types.out[1] = ot_type_matrix(OT_F64, s.V, s.C);
    c.types.out[2] = ot_type_vector(OT_F64, 1);
  }
  if (kind == OT_OP_HEAD_EVALUATE) {
    c.types.out[0] = ot_type_vector(OT_F64, 1);
    c.types.out[1] = ot_type_vector(OT_F64, 1);
  }
  return c;
}

// Masks every third target, except the only one of a single row.
static void create(ot_case *c, shape s) {
  ot_case_create(c);
  if (c->kind == OT_OP_HEAD_LOGITS) return;
  for (int64_t r = 0; r < s.R; r++) {
    ot_case_set(&c->in[2], r, r % 3 == 1 ? -1 : (double)((r * 7 + s.V - 1) % s.V));
  }
  if (c->kind == OT_OP_HEAD_LOSS) ot_case_set(&c->in[3], 0, INVERSE_TOKENS);
}

// A GPU rounds the logits of the loss to bf16 where x is stored so (ops/head.h).
static bool rounds_logits(const ot_case *c) {
  return op_device_backend() == OT_BACKEND_CUDA && c->kind == OT_OP_HEAD_LOSS &&
         c->in[0].type.dtype == OT_BF16;
}

static double logit(const ot_case *c, int64_t row, int64_t v) {
  const int64_t C = c->in[0].type.dim[1];
  double sum = 0;
  for (int64_t i = 0; i < C; i++) {
    sum += ot_case_get(&c->in[0], row * C + i) * ot_case_get(&c->in[1], v * C + i);
  }
  if (rounds_logits(c)) sum = (double)ot_bf16_to_float(ot_bf16_from_float((float)sum));
  const double cap = c->attributes.soft_cap;
  return cap > 0 ? cap * tanh(sum / cap) : sum;
}

static double log_sum_exp(const ot_case *c, int64_t row, int64_t V) {
  double sum = 0;
  for (int64_t v = 0; v < V; v++) sum += exp(logit(c, row, v));
  return log(sum);
}

static double total_nats(const ot_case *c, shape s) {
  double sum = 0;
  for (int64_t r = 0; r < s.R; r++) {
    const int64_t target = (int64_t)ot_case_get(&c->in[2], r);
    if (target >= 0) sum += log_sum_exp(c, r, s.V) - logit(c, r, target);
  }
  return sum;
}

// dx and dw of the formula, in float64.
static void expect_gradients(const ot_case *c, shape s, double tolerance) {
  double *const dx = calloc((size_t)(s.R * s.C), sizeof *dx);
  double *const dw = calloc((size_t)(s.V * s.C), sizeof *dw);
  for (int64_t r = 0; r < s.R; r++) {
    const int64_t target = (int64_t)ot_case_get(&c->in[2], r);
    if (target < 0) continue;
    const double lse = log_sum_exp(c, r, s.V);
    for (int64_t v = 0; v < s.V; v++) {
      const double capped = s.soft_cap > 0 ? logit(c, r, v) / s.soft_cap : 0;
      const double slope = 1 - capped * capped;
      const double d = (exp(logit(c, r, v) - lse) - (v == target)) * slope * INVERSE_TOKENS;
      for (int64_t i = 0; i < s.C; i++) {
        dx[r * s.C + i] += d * ot_case_get(&c->in[1], v * s.C + i);
        dw[v * s.C + i] += d * ot_case_get(&c->in[0], r * s.C + i);
      }
    }
  }
  ot_case_expect(&c->out[0], dx, tolerance, "dx");
  ot_case_expect(&c->out[1], dw, tolerance, "dw");
  free(dx);
  free(dw);
}

static void loss_and_gradients_are_the_formula(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    ot_case c = head_case(OT_OP_HEAD_LOSS, shapes[i]);
    create(&c, shapes[i]);
    ot_case_set(&c.out[2], 0, 0.5);
    ot_case_run(&c);
    const double loss = 0.5 + total_nats(&c, shapes[i]) * INVERSE_TOKENS;
    ot_case_expect(&c.out[2], &loss, 1e-13, "loss");
    expect_gradients(&c, shapes[i], 1e-12);
    ot_case_destroy(&c);
  }
}

// Gives row 0 a large logit where the part of a row ends that the kernel of a GPU keeps, 159 KiB.
static void put_large_logit(const ot_case *c, shape s) {
  enum { AT = 81500 };
  if (s.V <= AT) return;
  for (int64_t i = 0; i < s.C; i++) {
    ot_case_set(&c->in[1], AT * s.C + i, 2 * ot_case_get(&c->in[0], i));
  }
}

// In bf16 from the logits that the device has, rounded or not.
static void bf16_gradients_are_the_formula(void **state) {
  (void)state;
  for (int i = 0; i <= NUM_SHAPES; i++) {
    const shape s = i < NUM_SHAPES ? shapes[i] : (shape){3, 8, 90003, 2, 0};
    ot_case exact = head_case(OT_OP_HEAD_LOSS, s), c;
    create(&exact, s);
    put_large_logit(&exact, s);
    ot_case_clone(&exact, OT_F32, OT_BF16, &c);
    ot_case_set(&c.out[2], 0, 0.5);
    ot_case_run(&c);
    const double loss = 0.5 + total_nats(&c, s) * INVERSE_TOKENS;
    ot_case_expect(&c.out[2], &loss, 1e-5, "loss");
    expect_gradients(&c, s, 6e-3);
    ot_case_destroy(&c);
    ot_case_destroy(&exact);
  }
}

static void a_number_that_is_none_reaches_the_loss(void **state) {
  (void)state;
  static const ot_dtype types[3][2] = {{OT_F64, OT_F64}, {OT_F32, OT_F32}, {OT_F32, OT_BF16}};
  const shape s = {5, 6, 700, 4, 0};
  for (int i = 0; i < 3; i++) {
    ot_case exact = head_case(OT_OP_HEAD_LOSS, s), c;
    create(&exact, s);
    ot_case_clone(&exact, types[i][0], types[i][1], &c);
    ot_case_set(&c.in[1], 650 * s.C, NAN);
    ot_case_run(&c);
    assert_true(isnan(ot_case_get(&c.out[2], 0)));
    ot_case_destroy(&c);
    ot_case_destroy(&exact);
  }
}

static void expect_slopes(shape s) {
  ot_case c = head_case(OT_OP_HEAD_LOSS, s);
  create(&c, s);
  ot_case_run(&c);
  for (int input = 0; input < 2; input++) {
    const int64_t n = ot_type_elements(&c.in[input].type);
    double *const found = calloc((size_t)n, sizeof *found);
    for (int64_t k = 0; k < n; k++) {
      const double value = ot_case_get(&c.in[input], k);
      ot_case_set(&c.in[input], k, value + 1e-4);
      const double above = total_nats(&c, s);
      ot_case_set(&c.in[input], k, value - 1e-4);
      found[k] = (above - total_nats(&c, s)) * INVERSE_TOKENS / 2e-4;
      ot_case_set(&c.in[input], k, value);
    }
    ot_case_expect(&c.out[input], found, 1e-7, input == 0 ? "dx" : "dw");
    free(found);
  }
  ot_case_destroy(&c);
}

static void gradients_are_the_slope_of_the_loss(void **state) {
  (void)state;
  expect_slopes((shape){6, 4, 9, 4, 0});
  expect_slopes((shape){6, 4, 9, 4, 0.8});
}

// Against logits in float64. Those that a GPU rounds to bf16 are off by up to d = 2^-8 of the
// largest, so that probabilities are off by a factor between exp(-2 d) and exp(2 d).
static double bf16_tolerance(const ot_case *c, shape s) {
  double largest = 0;
  if (op_device_backend() != OT_BACKEND_CUDA || c->kind != OT_OP_HEAD_LOSS) return 6e-3;
  for (int64_t k = 0; k < s.R * s.V; k++) {
    largest = fmax(largest, fabs(logit(c, k / s.V, k % s.V)));
  }
  return 6e-3 + exp(2 * largest / 256) - 1;
}

static void every_operator_agrees_in_every_precision(void **state) {
  (void)state;
  const ot_op_kind kinds[] = {OT_OP_HEAD_LOSS, OT_OP_HEAD_EVALUATE, OT_OP_HEAD_SCORE,
                              OT_OP_HEAD_LOGITS};
  for (int i = 0; i < 4 * NUM_SHAPES; i++) {
    ot_case c = head_case(kinds[i % 4], shapes[i / 4]);
    create(&c, shapes[i / 4]);
    ot_case_check_precisions(&c, 3e-6, bf16_tolerance(&c, shapes[i / 4]));
    ot_case_destroy(&c);
  }
}

// More rows of w than one widening block (half a Mi elements), in chunks.
static void weights_are_widened_block_by_block(void **state) {
  (void)state;
  const shape s = {20, 512, 1100, 8, 0};
  ot_case c = head_case(OT_OP_HEAD_LOSS, s);
  create(&c, s);
  ot_case_fill(&c.in[1], 3, 0.05, 0);
  ot_case_check_precisions(&c, 3e-6, 6e-3);
  ot_case_destroy(&c);
}

// cuBLASLt is fast where extents are multiples of 8: those of V are made such, and the last V % 8
// rows of dw are a product of their own.
static void a_vocabulary_of_any_size_has_aligned_products(void **state) {
  (void)state;
  const shape s = {192, 88, 203, 64, 0};
  const ot_op_kind kinds[] = {OT_OP_HEAD_LOSS, OT_OP_HEAD_EVALUATE, OT_OP_HEAD_SCORE};
  for (int i = 0; i < 3; i++) {
    ot_case c = head_case(kinds[i], s), narrow;
    create(&c, s);
    ot_case_clone(&c, OT_F32, OT_BF16, &narrow);
    ot_case_run(&narrow);
    ot_case_destroy(&narrow);
    ot_case_destroy(&c);
  }
  op_device_expect_aligned(s.C, 4);
}

static void chunks_change_nothing_but_the_order_of_sums_over_rows(void **state) {
  (void)state;
  const shape s = {23, 9, 40, 0, 0};
  ot_case whole = head_case(OT_OP_HEAD_LOSS, s);
  create(&whole, s);
  ot_case_run(&whole);
  for (int64_t chunk = 1; chunk <= 24; chunk++) {
    ot_case c;
    ot_case_clone(&whole, OT_F64, OT_F64, &c);
    ot_case_set(&c.out[2], 0, 0);
    c.attributes.chunk_rows = chunk;
    ot_case_run(&c);
    assert_memory_equal(c.out[2].data, whole.out[2].data, sizeof(double));
    for (int i = 0; i < 2; i++) ot_case_expect(&c.out[i], whole.out[i].data, 1e-14, "gradient");
    ot_case_destroy(&c);
  }
  ot_case_destroy(&whole);
}

static int64_t cuda_chunk(ot_op_kind kind, int64_t R, int64_t V, ot_dtype storage) {
  const ot_op_attributes attributes = {.compute = OT_F32, .backend = OT_BACKEND_CUDA};
  const ot_op_types types = {
      .in = {ot_type_matrix(storage, R, 64), ot_type_matrix(storage, V, 64)}};
  const ot_cuda_head_layout layout = ot_cuda_head_layout_of(kind, &attributes, &types);
  assert_int_equal(layout.logits_dtype, kind == OT_OP_HEAD_LOSS ? storage : OT_F32);
  return layout.chunk;
}

static void chunks_of_a_gpu_are_equal_and_bounded_by_memory_and_rows(void **state) {
  (void)state;
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 16384, 151936, OT_BF16), 4096);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 16384, 151936, OT_F32), 2048);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_EVALUATE, 16384, 151936, OT_BF16), 1024);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 32768, 50257, OT_BF16), 8192);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 32768, 1000, OT_BF16), 8192);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 9000, 1000, OT_BF16), 4544);
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 1000, 50257, OT_BF16), 1000);
  // 16 chunks at most: other activations are then larger.
  assert_int_equal(cuda_chunk(OT_OP_HEAD_LOSS, 262144, 50257, OT_BF16), 16384);
}

static void weight_gradient_is_added_when_asked(void **state) {
  (void)state;
  const shape s = {11, 6, 20, 4, 0};
  const ot_dtype accumulators[] = {OT_F64, OT_F32};
  for (int i = 0; i < 2; i++) {
    ot_case c = head_case(OT_OP_HEAD_LOSS, s);
    c.types.out[1].dtype = accumulators[i];
    create(&c, s);
    ot_case_run(&c);
    double expected[20 * 6];
    for (int k = 0; k < 20 * 6; k++) expected[k] = 2 * ot_case_get(&c.out[1], k);
    c.attributes.accumulate = true;
    ot_case_run(&c);
    ot_case_expect(&c.out[1], expected, i == 0 ? 1e-14 : 1e-6, "dw");
    ot_case_destroy(&c);
  }
}

static void works_without_a_weight_gradient(void **state) {
  (void)state;
  const shape s = {5, 6, 20, 4, 0};
  ot_case with = head_case(OT_OP_HEAD_LOSS, s);
  ot_case without = with;
  without.types.out[1] = (ot_tensor_type){0};
  create(&with, s);
  create(&without, s);
  ot_case_run(&with);
  ot_case_run(&without);
  ot_case_expect(&without.out[0], with.out[0].data, 0, "dx");
  ot_case_expect(&without.out[2], with.out[2].data, 0, "loss");
  ot_case_destroy(&with);
  ot_case_destroy(&without);
}

static void evaluation_adds_nats_and_counts_unmasked_rows(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    ot_case c = head_case(OT_OP_HEAD_EVALUATE, shapes[i]);
    create(&c, shapes[i]);
    ot_case_set(&c.out[0], 0, 3);
    ot_case_set(&c.out[1], 0, 4);
    ot_case_run(&c);
    const double sum = 3 + total_nats(&c, shapes[i]);
    const double count = 4 + (double)(shapes[i].R - (shapes[i].R + 1) / 3);
    ot_case_expect(&c.out[0], &sum, 1e-13, "loss_sum");
    ot_case_expect(&c.out[1], &count, 0, "token_count");
    ot_case_destroy(&c);
  }
}

static void scores_are_log_probabilities_and_the_first_largest_logit(void **state) {
  (void)state;
  const shape s = {8, 5, 30, 3, 0};
  ot_case c = head_case(OT_OP_HEAD_SCORE, s);
  create(&c, s);
  // Rows 4 and 17 of w are equal and have the largest logit if x[0] is large.
  for (int64_t i = 0; i < s.C; i++) {
    ot_case_set(&c.in[1], 4 * s.C + i, i == 0 ? 100 : 0);
    ot_case_set(&c.in[1], 17 * s.C + i, i == 0 ? 100 : 0);
  }
  for (int64_t r = 0; r < s.R; r++) ot_case_set(&c.in[0], r * s.C, r % 2 == 0 ? 1 : -1);
  ot_case_run(&c);
  for (int64_t r = 0; r < s.R; r++) {
    const int64_t target = (int64_t)ot_case_get(&c.in[2], r);
    const double logprob = target < 0 ? 0 : logit(&c, r, target) - log_sum_exp(&c, r, s.V);
    assert_true(fabs(ot_case_get(&c.out[0], r) - logprob) <= 1e-12 * (1 + fabs(logprob)));
    int64_t best = 0;
    for (int64_t v = 1; v < s.V; v++) best = logit(&c, r, v) > logit(&c, r, best) ? v : best;
    assert_int_equal((int64_t)ot_case_get(&c.out[1], r), best);
    if (r % 2 == 0) assert_int_equal(best, 4);
  }
  ot_case_destroy(&c);
}

static ot_shard_score shard_of(const ot_case *c, int64_t r) {
  return (ot_shard_score){ot_case_get(&c->out[0], r), ot_case_get(&c->out[2], r),
                          ot_case_get(&c->out[3], r), (int32_t)ot_case_get(&c->out[1], r)};
}

// Creates the case of rows [first, first + V) of the vocabulary of `whole`.
static ot_case create_shard(const ot_case *whole, shape s, int64_t first, int64_t V) {
  ot_case c = head_case(OT_OP_HEAD_SCORE, (shape){s.R, s.C, V, s.chunk_rows, s.soft_cap});
  c.attributes.first_vocab = first;
  c.types.out[2] = c.types.out[3] = ot_type_vector(OT_F64, s.R);
  ot_case_create(&c);
  for (int64_t k = 0; k < s.R * s.C; k++) ot_case_set(&c.in[0], k, ot_case_get(&whole->in[0], k));
  for (int64_t k = 0; k < V * s.C; k++)
    ot_case_set(&c.in[1], k, ot_case_get(&whole->in[1], first * s.C + k));
  for (int64_t r = 0; r < s.R; r++) ot_case_set(&c.in[2], r, ot_case_get(&whole->in[2], r));
  return c;
}

static void scores_of_shards_join_to_those_of_the_whole_vocabulary(void **state) {
  (void)state;
  for (int i = 1; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case whole = head_case(OT_OP_HEAD_SCORE, s);
    whole.types.out[2] = ot_type_vector(OT_F64, s.R);
    create(&whole, s);
    ot_case_run(&whole);
    ot_case shard[] = {create_shard(&whole, s, 0, 5), create_shard(&whole, s, 5, s.V - 5)};
    for (int k = 0; k < 2; k++) ot_case_run(&shard[k]);
    for (int64_t r = 0; r < s.R; r++) {
      const ot_shard_score parts[] = {shard_of(&shard[0], r), shard_of(&shard[1], r)};
      const ot_row_score joined = ot_head_join_scores(parts, 2);
      if (ot_case_get(&whole.in[2], r) < 0) continue;
      assert_true(fabs(joined.logprob - ot_case_get(&whole.out[0], r)) < 1e-12);
      assert_true(fabs(joined.best - ot_case_get(&whole.out[2], r)) < 1e-12);
      assert_int_equal(joined.greedy, (int32_t)ot_case_get(&whole.out[1], r));
    }
    for (int k = 0; k < 2; k++) ot_case_destroy(&shard[k]);
    ot_case_destroy(&whole);
  }
}

static void logits_are_products_of_rows(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = head_case(OT_OP_HEAD_LOGITS, s);
    create(&c, s);
    ot_case_run(&c);
    double *const expected = calloc((size_t)(s.R * s.V), sizeof *expected);
    for (int64_t k = 0; k < s.R * s.V; k++) expected[k] = logit(&c, k / s.V, k % s.V);
    ot_case_expect(&c.out[0], expected, 1e-13, "logits");
    free(expected);
    ot_case_destroy(&c);
  }
}

static void large_logits_do_not_overflow(void **state) {
  (void)state;
  const shape s = {2, 1, 3, 0, 0};
  ot_case c = head_case(OT_OP_HEAD_SCORE, s);
  create(&c, s);
  const double w[] = {30000, 29999, -30000};
  for (int v = 0; v < 3; v++) ot_case_set(&c.in[1], v, w[v]);
  for (int r = 0; r < 2; r++) ot_case_set(&c.in[0], r, 1);
  ot_case_set(&c.in[2], 0, 0);
  ot_case_set(&c.in[2], 1, 2);
  ot_case_run(&c);
  const double expected[] = {-log(1 + exp(-1.0)), -60000 - log(1 + exp(-1.0))};
  ot_case_expect(&c.out[0], expected, 1e-15, "logprob");
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loss_and_gradients_are_the_formula),
      cmocka_unit_test(bf16_gradients_are_the_formula),
      cmocka_unit_test(a_number_that_is_none_reaches_the_loss),
      cmocka_unit_test(gradients_are_the_slope_of_the_loss),
      cmocka_unit_test(every_operator_agrees_in_every_precision),
      cmocka_unit_test(weights_are_widened_block_by_block),
      cmocka_unit_test(a_vocabulary_of_any_size_has_aligned_products),
      cmocka_unit_test(chunks_change_nothing_but_the_order_of_sums_over_rows),
      cmocka_unit_test(chunks_of_a_gpu_are_equal_and_bounded_by_memory_and_rows),
      cmocka_unit_test(weight_gradient_is_added_when_asked),
      cmocka_unit_test(works_without_a_weight_gradient),
      cmocka_unit_test(evaluation_adds_nats_and_counts_unmasked_rows),
      cmocka_unit_test(scores_are_log_probabilities_and_the_first_largest_logit),
      cmocka_unit_test(scores_of_shards_join_to_those_of_the_whole_vocabulary),
      cmocka_unit_test(logits_are_products_of_rows),
      cmocka_unit_test(large_logits_do_not_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
