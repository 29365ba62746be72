// SPDX-License-Identifier: Apache-2.0
// ctest: device
// ctest: variant=own OT_PRODUCTS=own
// ctest: variant=other full emulated OT_SHIM_LT_ORDER=reversed
// run: serial. The sharded, chunked head, its ranks executed one after another in this process,
// against the head as one op on the whole vocabulary (test_head.c compares that with the formula)
// and against differences of the loss: uneven shards, chunks that do not divide the rows, masked
// rows, targets outside a shard.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/head.h"
#include "ops/head_parts.h"
#include "support/op_case.h"
#include "support/op_device.h"

typedef struct shape {
  int64_t R, C, V, chunk;
  double soft_cap;
} shape;

static const shape shapes[] = {
    {1, 1, 3, 1, 0},       {7, 5, 13, 3, 0},    {10, 8, 33, 4, 0},
    {23, 17, 1031, 23, 0}, {5, 12, 2100, 2, 0}, {10, 8, 1033, 4, 1.5},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0], MAX_SHARDS = 3 };

static const double INVERSE_TOKENS = 0.0625;

// The head as one op, with its results. Masks every third target, except the only one of a row.
static ot_case whole_case(shape s) {
  ot_case c = {
      .kind = OT_OP_HEAD_LOSS,
      .attributes = {.threads = 2,
                     .compute = OT_F64,
                     .chunk_rows = s.chunk,
                     .soft_cap = s.soft_cap},
      .types = {.in = {ot_type_matrix(OT_F64, s.R, s.C), ot_type_matrix(OT_F64, s.V, s.C),
                       ot_type_vector(OT_I32, s.R), ot_type_vector(OT_F64, 1)},
                .out = {{0}, ot_type_matrix(OT_F64, s.V, s.C), ot_type_vector(OT_F64, 1)}}};
  ot_case_create(&c);
  for (int64_t r = 0; r < s.R; r++) {
    ot_case_set(&c.in[2], r, r % 3 == 1 ? -1 : (double)((r * 7 + s.V - 1) % s.V));
  }
  ot_case_set(&c.in[3], 0, INVERSE_TOKENS);
  return c;
}

// ---- the ranks of tp ----

// One rank: its rows of w and its results.
typedef struct shard {
  int64_t first, V;
  double *dx, *dw;  // [R, C], [V, C]
  double loss, loss_sum, token_count;
} shard;

typedef struct ranks {
  const ot_case *whole;  // operands
  shape s;
  int k;
  bool in_place;
  shard shard[MAX_SHARDS];
  double *all_statistics;  // [k * chunk, 3]
  ot_case statistics[MAX_SHARDS];
} ranks;

static void copy_rows(const ot_tensor *to, const ot_tensor *from, int64_t first) {
  const int64_t n = ot_type_elements(&to->type);
  const int64_t columns = to->type.rank > 1 ? to->type.dim[1] : 1;
  for (int64_t e = 0; e < n; e++) ot_case_set(to, e, ot_case_get(from, first * columns + e));
}

static ot_op_attributes attributes_of(const ranks *t, int rank, int64_t first, int64_t rows) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .group_size = t->k,
                            .group_index = rank,
                            .first_vocab = t->shard[rank].first,
                            .first_row = first,
                            .chunk_rows = rows,
                            .soft_cap = t->s.soft_cap};
}

static ot_tensor_type statistics_type(const ranks *t, int64_t rows) {
  return ot_type_matrix(OT_F64, t->k * rows, OT_HEAD_STATISTICS);
}

static void run_statistics(ranks *t, int rank, int64_t first, int64_t rows) {
  const shard *const own = &t->shard[rank];
  ot_case *const c = &t->statistics[rank];
  *c = (ot_case){.kind = OT_OP_HEAD_STATISTICS,
                 .attributes = attributes_of(t, rank, first, rows),
                 .types = {.in = {t->whole->types.in[0], ot_type_matrix(OT_F64, own->V, t->s.C),
                                  t->whole->types.in[2]}}};
  ot_case_create(c);
  copy_rows(&c->in[0], &t->whole->in[0], 0);
  copy_rows(&c->in[1], &t->whole->in[1], own->first);
  copy_rows(&c->in[2], &t->whole->in[2], 0);
  ot_case_run(c);
  memcpy(t->all_statistics + rank * rows * OT_HEAD_STATISTICS, c->out[1].data,
         (size_t)ot_type_bytes(&c->types.out[1]));
}

// Computes dlogits, which the caller destroys, and adds the loss.
static ot_case run_dlogits(ranks *t, int rank, int64_t first, int64_t rows) {
  const ot_case *const before = &t->statistics[rank];
  ot_case c = {.kind = OT_OP_HEAD_DLOGITS,
               .attributes = attributes_of(t, rank, first, rows),
               .types = {.in = {before->types.out[0], statistics_type(t, rows),
                                t->whole->types.in[2], t->whole->types.in[3]},
                         .out = {{0}, ot_type_vector(OT_F64, 1)}}};
  ot_case_create(&c);
  copy_rows(&c.in[0], &before->out[0], 0);
  memcpy(c.in[1].data, t->all_statistics, (size_t)ot_type_bytes(&c.types.in[1]));
  copy_rows(&c.in[2], &t->whole->in[2], 0);
  copy_rows(&c.in[3], &t->whole->in[3], 0);
  ot_case_set(&c.out[1], 0, t->shard[rank].loss);
  if (t->in_place) {
    ot_case_run_in_place(&c);
  } else {
    ot_case_run(&c);
  }
  t->shard[rank].loss = ot_case_get(&c.out[1], 0);
  return c;
}

static void run_gradient(ranks *t, int rank, int64_t first, const ot_case *dlogits) {
  shard *const own = &t->shard[rank];
  const int64_t rows = dlogits->attributes.chunk_rows;
  const bool last = first + rows == t->s.R;
  const ot_tensor_type x = t->whole->types.in[0];
  ot_case c = {.kind = last ? OT_OP_HEAD_GRADIENT_LAST : OT_OP_HEAD_GRADIENT,
               .attributes = attributes_of(t, rank, first, rows),
               .types = {.in = {first > 0 ? x : (ot_tensor_type){0}, dlogits->types.out[0], x,
                                ot_type_matrix(OT_F64, own->V, t->s.C)},
                         .out = {{0}, ot_type_matrix(OT_F64, own->V, t->s.C)}}};
  c.attributes.accumulate = first > 0;
  ot_case_create(&c);
  if (first > 0) memcpy(c.in[0].data, own->dx, (size_t)ot_type_bytes(&x));
  copy_rows(&c.in[1], &dlogits->out[0], 0);
  copy_rows(&c.in[2], &t->whole->in[0], 0);
  copy_rows(&c.in[3], &t->whole->in[1], own->first);
  memcpy(c.out[1].data, own->dw, (size_t)ot_type_bytes(&c.types.out[1]));
  if (t->in_place && first > 0) {
    ot_case_run_in_place(&c);
  } else {
    ot_case_run(&c);
  }
  memcpy(own->dx, c.out[0].data, (size_t)ot_type_bytes(&x));
  memcpy(own->dw, c.out[1].data, (size_t)ot_type_bytes(&c.types.out[1]));
  ot_case_destroy(&c);
}

static void run_count(ranks *t, int rank, int64_t first, int64_t rows) {
  shard *const own = &t->shard[rank];
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  ot_case c = {
      .kind = OT_OP_HEAD_COUNT,
      .attributes = attributes_of(t, rank, first, rows),
      .types = {.in = {statistics_type(t, rows), t->whole->types.in[2]}, .out = {one, one}}};
  ot_case_create(&c);
  memcpy(c.in[0].data, t->all_statistics, (size_t)ot_type_bytes(&c.types.in[0]));
  copy_rows(&c.in[1], &t->whole->in[2], 0);
  ot_case_set(&c.out[0], 0, own->loss_sum);
  ot_case_set(&c.out[1], 0, own->token_count);
  ot_case_run(&c);
  own->loss_sum = ot_case_get(&c.out[0], 0);
  own->token_count = ot_case_get(&c.out[1], 0);
  ot_case_destroy(&c);
}

static void run_chunk(ranks *t, int64_t first, int64_t rows) {
  for (int i = 0; i < t->k; i++) run_statistics(t, i, first, rows);
  for (int i = 0; i < t->k; i++) {
    ot_case dlogits = run_dlogits(t, i, first, rows);
    run_gradient(t, i, first, &dlogits);
    run_count(t, i, first, rows);
    ot_case_destroy(&dlogits);
    ot_case_destroy(&t->statistics[i]);
  }
}

// Shards the vocabulary and runs all chunks; ends with ranks_destroy.
static ranks ranks_run(const ot_case *whole, shape s, int k, bool in_place) {
  ranks t = {.whole = whole, .s = s, .k = k, .in_place = in_place};
  t.all_statistics = calloc((size_t)(k * s.chunk * OT_HEAD_STATISTICS), sizeof(double));
  for (int i = 0; i < k; i++) {
    shard *const own = &t.shard[i];
    own->first = s.V * i / k;
    own->V = s.V * (i + 1) / k - own->first;
    own->dx = calloc((size_t)(s.R * s.C), sizeof(double));
    own->dw = calloc((size_t)(own->V * s.C), sizeof(double));
  }
  for (int64_t first = 0; first < s.R; first += s.chunk) {
    run_chunk(&t, first, s.R - first < s.chunk ? s.R - first : s.chunk);
  }
  return t;
}

static void ranks_destroy(ranks *t) {
  for (int i = 0; i < t->k; i++) {
    free(t->shard[i].dx);
    free(t->shard[i].dw);
  }
  free(t->all_statistics);
}

// Adds the dx of all ranks, in rank order, into that of the first rank.
static void sum_dx(ranks *t) {
  for (int i = 1; i < t->k; i++) {
    for (int64_t e = 0; e < t->s.R * t->s.C; e++) t->shard[0].dx[e] += t->shard[i].dx[e];
  }
}

static void expect_whole(ranks *t, double tolerance) {
  const ot_case *const whole = t->whole;
  sum_dx(t);
  ot_case_expect(&whole->out[0], t->shard[0].dx, tolerance, "dx");
  double *const dw = calloc((size_t)(t->s.V * t->s.C), sizeof *dw);
  for (int i = 0; i < t->k; i++) {
    const shard *const own = &t->shard[i];
    memcpy(dw + own->first * t->s.C, own->dw, (size_t)(own->V * t->s.C) * sizeof *dw);
    ot_case_expect(&whole->out[2], &own->loss, tolerance, "loss");
    // All ranks combine the same numbers in the same order.
    assert_memory_equal(&own->loss, &t->shard[0].loss, sizeof own->loss);
  }
  ot_case_expect(&whole->out[1], dw, tolerance, "dw");
  free(dw);
}

// ---- against the head as one op ----

static void shards_make_the_gradients_of_the_whole(void **state) {
  (void)state;
  for (int n = 0; n < 2 * MAX_SHARDS * NUM_SHAPES; n++) {
    const shape s = shapes[n / 2 / MAX_SHARDS];
    ot_case whole = whole_case(s);
    ot_case_run(&whole);
    ranks t = ranks_run(&whole, s, n / 2 % MAX_SHARDS + 1, n % 2 != 0);
    expect_whole(&t, 1e-13);
    ranks_destroy(&t);
    ot_case_destroy(&whole);
  }
}

static void one_shard_has_the_bits_of_the_whole(void **state) {
  (void)state;
  const shape s = {23, 9, 40, 6, 0};
  ot_case whole = whole_case(s);
  ot_case_run(&whole);
  ranks t = ranks_run(&whole, s, 1, true);
  assert_memory_equal(t.shard[0].dx, whole.out[0].data, 23 * 9 * sizeof(double));
  assert_memory_equal(t.shard[0].dw, whole.out[1].data, 40 * 9 * sizeof(double));
  ranks_destroy(&t);
  ot_case_destroy(&whole);
}

static void counts_what_evaluation_counts(void **state) {
  (void)state;
  for (int n = 0; n < MAX_SHARDS * NUM_SHAPES; n++) {
    const shape s = shapes[n / MAX_SHARDS];
    ot_case whole = whole_case(s);
    ot_case_run(&whole);
    ot_case evaluated = {.kind = OT_OP_HEAD_EVALUATE,
                         .attributes = whole.attributes,
                         .types = {.in = {whole.types.in[0], whole.types.in[1], whole.types.in[2]},
                                   .out = {ot_type_vector(OT_F64, 1), ot_type_vector(OT_F64, 1)}}};
    ot_case_create(&evaluated);
    for (int i = 0; i < 3; i++) copy_rows(&evaluated.in[i], &whole.in[i], 0);
    ot_case_run(&evaluated);
    ranks t = ranks_run(&whole, s, n % MAX_SHARDS + 1, false);
    for (int i = 0; i < t.k; i++) {
      ot_case_expect(&evaluated.out[0], &t.shard[i].loss_sum, 1e-14, "loss_sum");
      ot_case_expect(&evaluated.out[1], &t.shard[i].token_count, 0, "token_count");
    }
    ranks_destroy(&t);
    ot_case_destroy(&evaluated);
    ot_case_destroy(&whole);
  }
}

static double loss_of(const ot_case *whole, shape s, int k) {
  ranks t = ranks_run(whole, s, k, true);
  const double loss = t.shard[0].loss;
  ranks_destroy(&t);
  return loss;
}

static void gradients_are_the_slope_of_the_loss(void **state) {
  (void)state;
  const shape s = {4, 3, 7, 3, 0};
  ot_case whole = whole_case(s);
  ranks t = ranks_run(&whole, s, 2, true);
  sum_dx(&t);
  for (int input = 0; input < 2; input++) {
    const int64_t n = ot_type_elements(&whole.in[input].type);
    for (int64_t e = 0; e < n; e++) {
      const double value = ot_case_get(&whole.in[input], e);
      ot_case_set(&whole.in[input], e, value + 1e-4);
      const double above = loss_of(&whole, s, 2);
      ot_case_set(&whole.in[input], e, value - 1e-4);
      const double slope = (above - loss_of(&whole, s, 2)) / 2e-4;
      ot_case_set(&whole.in[input], e, value);
      const int owner = input == 1 && e >= t.shard[1].first * s.C;
      const double found =
          input == 0 ? t.shard[0].dx[e] : t.shard[owner].dw[e - t.shard[owner].first * s.C];
      if (fabs(found - slope) > 1e-9) fail_msg("input %d: %.12g, slope %.12g", input, found, slope);
    }
  }
  ranks_destroy(&t);
  ot_case_destroy(&whole);
}

// ---- targets outside a shard or outside the vocabulary ----

static void a_shard_without_any_target_says_so(void **state) {
  (void)state;
  const shape s = {5, 4, 20, 5, 0};
  ot_case whole = whole_case(s);
  for (int64_t r = 0; r < s.R; r++) ot_case_set(&whole.in[2], r, r == 3 ? -1 : (double)r);
  ot_case_run(&whole);
  ranks t = ranks_run(&whole, s, 3, false);
  for (int64_t r = 0; r < s.R; r++) {
    const double *const own = t.all_statistics + r * OT_HEAD_STATISTICS;
    const double *const other = own + s.R * OT_HEAD_STATISTICS;
    assert_true(isfinite(own[2]) == (r != 3));
    assert_true(other[2] == -INFINITY);
    if (r == 3) assert_true(own[0] == 0 && own[1] == 0 && other[1] == 0);
  }
  expect_whole(&t, 1e-13);
  ranks_destroy(&t);
  ot_case_destroy(&whole);
}

static void masked_rows_give_nothing(void **state) {
  (void)state;
  const shape s = {6, 4, 9, 3, 0};
  ot_case whole = whole_case(s);
  for (int64_t r = 0; r < s.R; r++) ot_case_set(&whole.in[2], r, -1);
  ranks t = ranks_run(&whole, s, 2, true);
  for (int i = 0; i < 2; i++) {
    assert_true(t.shard[i].loss == 0 && t.shard[i].token_count == 0);
    for (int64_t e = 0; e < s.R * s.C; e++) assert_true(t.shard[i].dx[e] == 0);
    for (int64_t e = 0; e < t.shard[i].V * s.C; e++) assert_true(t.shard[i].dw[e] == 0);
  }
  ranks_destroy(&t);
  ot_case_destroy(&whole);
}

// Largest logits far apart: the exponentials of one shard vanish relative to those of the other.
static void shards_of_very_different_logits_do_not_overflow(void **state) {
  (void)state;
  const shape s = {2, 1, 4, 2, 0};
  const double w[] = {30000, 29999, -30000, -30001};
  for (int turned = 0; turned < 2; turned++) {
    ot_case whole = whole_case(s);
    for (int v = 0; v < 4; v++) ot_case_set(&whole.in[1], v, w[turned ? 3 - v : v]);
    for (int r = 0; r < 2; r++) ot_case_set(&whole.in[0], r, 1);
    ot_case_set(&whole.in[2], 0, 0);
    ot_case_set(&whole.in[2], 1, 3);
    ot_case_run(&whole);
    ranks t = ranks_run(&whole, s, 2, true);
    const double loss = (60001 + 2 * log(1 + exp(-1.0))) * INVERSE_TOKENS;
    assert_true(fabs(t.shard[0].loss - loss) <= 1e-15 * loss);
    expect_whole(&t, 1e-15);
    ranks_destroy(&t);
    ot_case_destroy(&whole);
  }
}

// ---- every path of the kernels ----

// The chunk of tokens after the first one.
static void expect_precisions(shape s) {
  const int64_t rows = s.R - s.chunk;
  ot_case whole = whole_case(s);
  for (int64_t r = 0; r < s.R; r++) ot_case_set(&whole.in[2], r, (double)(r * 7 % s.V));
  ranks t = {.whole = &whole, .s = s, .k = 1, .shard = {{.V = s.V}}};
  t.all_statistics = calloc((size_t)(rows * OT_HEAD_STATISTICS), sizeof(double));
  t.shard[0].dx = calloc((size_t)(s.R * s.C), sizeof(double));
  t.shard[0].dw = calloc((size_t)(s.V * s.C), sizeof(double));
  run_statistics(&t, 0, s.chunk, rows);
  ot_case_check_precisions(&t.statistics[0], 3e-6, 6e-3);
  ot_case dlogits = run_dlogits(&t, 0, s.chunk, rows);
  dlogits.statistic_inputs = 1u << 0;
  dlogits.fixed_inputs = 1u << 1 | 1u << 3;
  ot_case_check_precisions(&dlogits, 3e-6, 3e-6);
  const ot_tensor_type x = whole.types.in[0];
  ot_case c = {.kind = OT_OP_HEAD_GRADIENT_LAST,
               .attributes = dlogits.attributes,
               .types = {.in = {x, dlogits.types.out[0], x, whole.types.in[1]},
                         .out = {{0}, whole.types.in[1]}},
               .statistic_inputs = 1u << 1};
  ot_case_create(&c);
  copy_rows(&c.in[1], &dlogits.out[0], 0);
  ot_case_check_precisions(&c, 3e-6, 6e-3);
  c.attributes.accumulate = true;
  ot_case_check_precisions(&c, 3e-6, 6e-3);
  ot_case_destroy(&c);
  ot_case_destroy(&dlogits);
  ot_case_destroy(&t.statistics[0]);
  ranks_destroy(&t);
  ot_case_destroy(&whole);
}

static void the_parts_agree_in_every_precision(void **state) {
  (void)state;
  expect_precisions((shape){70, 40, 600, 40, 0});
}

// A shard of any size, in a chunk of 128 tokens and more.
static void shards_of_any_size_have_aligned_products(void **state) {
  (void)state;
  expect_precisions((shape){152, 72, 45, 16, 0});
  op_device_expect_aligned(72, 4);
}

static void works_without_a_weight_gradient(void **state) {
  (void)state;
  const ot_tensor_type x = ot_type_matrix(OT_F64, 4, 3);
  const ot_tensor_type w = ot_type_matrix(OT_F64, 6, 3);
  ot_case c = {.kind = OT_OP_HEAD_GRADIENT_LAST,
               .attributes = {.threads = 1, .compute = OT_F64, .chunk_rows = 4},
               .types = {.in = {{0}, ot_type_matrix(OT_F64, 4, 6), x, w}}};
  ot_case_create(&c);
  ot_case_run(&c);
  double dx[4 * 3] = {0};
  for (int i = 0; i < 4 * 3 * 6; i++) {
    const int r = i / 18, column = i / 6 % 3, v = i % 6;
    dx[r * 3 + column] += ot_case_get(&c.in[1], r * 6 + v) * ot_case_get(&c.in[3], v * 3 + column);
  }
  ot_case_expect(&c.out[0], dx, 1e-14, "dx");
  ot_case_destroy(&c);
}

// ---- shapes and costs ----

static void uneven_shards_choose_the_same_chunks(void **state) {
  (void)state;
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  const int64_t rows = ot_head_chunk_rows(&attributes, 100000, 50257 / 2 + 1, 4);
  assert_true(rows >= 64 && rows < 100000 && rows % 64 == 0);
  assert_int_equal(ot_head_chunk_rows(&attributes, 10, 25129, 4), 10);
  attributes.chunk_rows = 12;
  assert_int_equal(ot_head_chunk_rows(&attributes, 100000, 25129, 4), 12);
  assert_int_equal(ot_head_chunk_rows(&attributes, 5, 25129, 4), 5);
}

static void refuses_a_chunk_with_nothing_before_it(void **state) {
  (void)state;
  const ot_tensor_type x = ot_type_matrix(OT_F32, 8, 3);
  ot_op_types types = {.in = {{0}, ot_type_matrix(OT_F32, 4, 6), x, ot_type_matrix(OT_F32, 6, 3)}};
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .first_row = 4, .chunk_rows = 4};
  assert_int_equal(ot_op_infer(OT_OP_HEAD_GRADIENT, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "head_gradient: dx_before is absent, but 4 tokens precede the chunk");
  attributes.first_row = 5;
  assert_int_equal(ot_op_infer(OT_OP_HEAD_GRADIENT, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "head_gradient: a chunk of 4 tokens from token 5 exceeds 8");
}

static void refuses_statistics_of_another_number_of_ranks(void **state) {
  (void)state;
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 6), ot_type_matrix(OT_F64, 8, 3),
                              ot_type_vector(OT_I32, 8), one},
                       .out = {{0}, one}};
  ot_op_attributes attributes = {
      .threads = 1, .compute = OT_F32, .chunk_rows = 4, .group_size = 2, .group_index = 1};
  assert_int_equal(ot_op_infer(OT_OP_HEAD_DLOGITS, &attributes, &types), OT_OK);
  attributes.group_size = 3;
  assert_int_equal(ot_op_infer(OT_OP_HEAD_DLOGITS, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "head_dlogits: all_statistics is fp64 [8, 3], expected fp64 [12, 3]");
}

// The parts of all chunks have the GEMM FLOPs of the head as one op, no more.
static void the_parts_have_the_cost_of_the_whole(void **state) {
  (void)state;
  const shape s = {12, 8, 30, 4, 0};
  ot_case whole = whole_case(s);
  const ot_cost expected = ot_op_cost(OT_OP_HEAD_LOSS, &whole.attributes, &whole.types);
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F64, .chunk_rows = 4};
  ot_op_types statistics = {.in = {whole.types.in[0], whole.types.in[1], whole.types.in[2]}};
  assert_int_equal(ot_op_infer(OT_OP_HEAD_STATISTICS, &attributes, &statistics), OT_OK);
  ot_op_types gradient = {.in = {{0}, statistics.out[0], whole.types.in[0], whole.types.in[1]},
                          .out = {whole.types.in[0], whole.types.in[1]}};
  const ot_cost first = ot_op_cost(OT_OP_HEAD_STATISTICS, &attributes, &statistics);
  const ot_cost second = ot_op_cost(OT_OP_HEAD_GRADIENT, &attributes, &gradient);
  assert_true(3 * (first.matrix_flops + second.matrix_flops) == expected.matrix_flops);
  // dlogits twice, w, the chunk's rows of x; then the chunk's rows of dx, dw.
  assert_true(second.bytes_read == 8 * (2 * 4 * 30 + 30 * 8 + 4 * 8));
  assert_true(second.bytes_written == 8 * (4 * 8 + 30 * 8));
  ot_case_destroy(&whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shards_make_the_gradients_of_the_whole),
      cmocka_unit_test(one_shard_has_the_bits_of_the_whole),
      cmocka_unit_test(counts_what_evaluation_counts),
      cmocka_unit_test(gradients_are_the_slope_of_the_loss),
      cmocka_unit_test(a_shard_without_any_target_says_so),
      cmocka_unit_test(masked_rows_give_nothing),
      cmocka_unit_test(shards_of_very_different_logits_do_not_overflow),
      cmocka_unit_test(the_parts_agree_in_every_precision),
      cmocka_unit_test(shards_of_any_size_have_aligned_products),
      cmocka_unit_test(works_without_a_weight_gradient),
      cmocka_unit_test(uneven_shards_choose_the_same_chunks),
      cmocka_unit_test(refuses_a_chunk_with_nothing_before_it),
      cmocka_unit_test(refuses_statistics_of_another_number_of_ranks),
      cmocka_unit_test(the_parts_have_the_cost_of_the_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
