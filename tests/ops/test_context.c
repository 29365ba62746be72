// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. The copies of context-parallel attention: destination of each element, bitwise
// inverses, and attention with exchanged heads (all ranks in one process, all-to-all as plain
// copies) against whole sequences on one rank.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { MOST_RANKS = 4, FIRST_HEAD = 8 };

static void copy_values(const ot_tensor *from, const ot_tensor *to) {
  assert_int_equal(ot_type_elements(&from->type), ot_type_elements(&to->type));
  for (int64_t i = 0; i < ot_type_elements(&to->type); i++) {
    ot_case_set(to, i, ot_case_get(from, i));
  }
}

// Fails unless the elements equal an input of another run.
static void expect_same(const ot_tensor *found, const ot_tensor *expected) {
  assert_int_equal(ot_type_bytes(&found->type), ot_type_bytes(&expected->type));
  assert_memory_equal(found->data, expected->data, (size_t)ot_type_bytes(&found->type));
}

// ---- one op ----

static const ot_op_attributes few = {.threads = 2,
                                     .compute = OT_F64,
                                     .sequence_length = 3,
                                     .num_heads = 4,
                                     .num_kv_heads = 2,
                                     .head_dim = 5,
                                     .context_size = 2};

static ot_case made(ot_op_kind kind, const ot_op_attributes *attributes, ot_tensor_type in) {
  ot_case c = {.kind = kind, .attributes = *attributes, .types = {.in = {in}}};
  ot_case_create(&c);
  return c;
}

static void expect_inverse(ot_op_kind kind, ot_op_kind inverse, const ot_op_attributes *a,
                           ot_tensor_type in) {
  ot_case there = made(kind, a, in);
  ot_case_run(&there);
  ot_case back = made(inverse, a, there.types.out[0]);
  copy_values(&there.out[0], &back.in[0]);
  ot_case_run(&back);
  expect_same(&back.out[0], &there.in[0]);
  ot_case_destroy(&there);
  ot_case_destroy(&back);
}

static void copies_invert_exactly(void **state) {
  (void)state;
  const ot_dtype dtypes[] = {OT_F32, OT_BF16, OT_F64};
  for (int d = 0; d < 3; d++) {
    const ot_tensor_type shares = ot_type_matrix(dtypes[d], 2 * 300, 20);
    const ot_tensor_type whole = ot_type_matrix(dtypes[d], 300, 40);
    expect_inverse(OT_OP_HEADS_SCATTER, OT_OP_HEADS_GATHER, &few, whole);
    expect_inverse(OT_OP_HEADS_GATHER, OT_OP_HEADS_SCATTER, &few, shares);
    expect_inverse(OT_OP_SEQUENCE_JOIN, OT_OP_SEQUENCE_SPLIT, &few, shares);
    expect_inverse(OT_OP_SEQUENCE_SPLIT, OT_OP_SEQUENCE_JOIN, &few, shares);
  }
}

static void scatter_puts_the_heads_of_a_rank_together(void **state) {
  (void)state;
  const int64_t R = 6, D = 5, H = 4, G = 2;
  ot_case c = made(OT_OP_HEADS_SCATTER, &few, ot_type_matrix(OT_F64, R, (H + 2 * G) * D));
  ot_case_run(&c);
  // On each rank: two query heads, one key head, one value head.
  const int64_t heads[2][4] = {{0, 1, 4, 6}, {2, 3, 5, 7}};
  for (int64_t k = 0; k < 2 * R * 4 * D; k++) {
    const int64_t rank = k / (R * 4 * D), row = k / (4 * D) % R, head = heads[rank][k / D % 4];
    const double expected = ot_case_get(&c.in[0], (row * 8 + head) * D + k % D);
    assert_true(ot_case_get(&c.out[0], k) == expected);
  }
  ot_case_destroy(&c);
}

static void scatter_takes_outputs_of_attention_too(void **state) {
  (void)state;
  ot_op_attributes a = few;
  a.num_kv_heads = 0;
  ot_case c = made(OT_OP_HEADS_SCATTER, &a, ot_type_matrix(OT_F64, 6, 20));
  ot_case_run(&c);
  for (int64_t k = 0; k < 6 * 20; k++) {
    const double expected = ot_case_get(&c.in[0], k / 10 % 6 * 20 + k / 60 * 10 + k % 10);
    assert_true(ot_case_get(&c.out[0], k) == expected);
  }
  ot_case_destroy(&c);
}

static void join_orders_rows_by_sequence_and_position(void **state) {
  (void)state;
  const ot_tensor_type types[] = {ot_type_matrix(OT_F64, 12, 7), ot_type_vector(OT_I32, 12)};
  for (int k = 0; k < 2; k++) {
    ot_case c = made(OT_OP_SEQUENCE_JOIN, &few, types[k]);
    const int64_t width = ot_type_elements(&types[k]) / 12;
    // Element = 100 * sequence + position, in rows (rank, sequence, row of the shard).
    for (int64_t i = 0; i < 12 * width; i++) {
      const int64_t row = i / width;
      ot_case_set(&c.in[0], i, (double)(row / 3 % 2 * 100 + row / 6 * 3 + row % 3));
    }
    ot_case_run(&c);
    for (int64_t i = 0; i < 12 * width; i++) {
      const int64_t row = i / width;
      assert_true(ot_case_get(&c.out[0], i) == (double)(row / 6 * 100 + row % 6));
    }
    ot_case_destroy(&c);
  }
}

static void slice_and_join_keep_the_order_of_qkv(void **state) {
  (void)state;
  const int64_t R = 700, q = 20, kv = 20;
  ot_case slice = made(OT_OP_KV_SLICE, &few, ot_type_matrix(OT_BF16, R, q + kv));
  ot_case_run(&slice);
  ot_case join = {.kind = OT_OP_QKV_JOIN,
                  .attributes = few,
                  .types = {.in = {ot_type_matrix(OT_F64, R, q), ot_type_matrix(OT_F64, R, kv)},
                            .out = {slice.types.in[0]}}};
  ot_case_create(&join);
  copy_values(&slice.out[0], &join.in[1]);
  for (int64_t i = 0; i < R * q; i++) {
    ot_case_set(&join.in[0], i, ot_case_get(&slice.in[0], i / q * (q + kv) + i % q));
  }
  ot_case_run(&join);
  expect_same(&join.out[0], &slice.in[0]);
  ot_case_destroy(&slice);
  ot_case_destroy(&join);
}

static void join_of_gradients_rounds_to_the_type_that_is_given(void **state) {
  (void)state;
  ot_op_attributes a = few;
  a.compute = OT_F32;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 3, 20), ot_type_matrix(OT_F32, 3, 20)}};
  assert_int_equal(ot_op_infer(OT_OP_QKV_JOIN, &a, &types), OT_OK);
  assert_int_equal(types.out[0].dtype, OT_F32);
  types.out[0] = ot_type_vector(OT_BF16, 1);
  assert_int_equal(ot_op_infer(OT_OP_QKV_JOIN, &a, &types), OT_OK);
  assert_int_equal(types.out[0].dtype, OT_BF16);
  assert_int_equal(types.out[0].dim[1], 40);
  ot_case c = {.kind = OT_OP_QKV_JOIN, .attributes = a, .types = types};
  ot_case_create(&c);
  ot_case_set(&c.in[0], 0, 1 + 0x1p-8);
  ot_case_set(&c.in[0], 1, 1 + 0x1p-8 + 0x1p-20);
  ot_case_run(&c);
  assert_true(ot_case_get(&c.out[0], 0) == 1);
  assert_true(ot_case_get(&c.out[0], 1) == 1 + 0x1p-7);
  ot_case_destroy(&c);
}

static void gradients_are_the_inverse_copies(void **state) {
  (void)state;
  const ot_op_kind kinds[] = {OT_OP_HEADS_SCATTER, OT_OP_HEADS_GATHER, OT_OP_SEQUENCE_JOIN,
                              OT_OP_SEQUENCE_SPLIT};
  for (int k = 0; k < 4; k++) {
    const int64_t width = k == 0 ? 40 : 20;
    ot_case c = made(kinds[k], &few, ot_type_matrix(OT_F64, 6, width));
    ot_case_run(&c);
    ot_case_check_gradients(&c, 1e-3, 1e-9);
    ot_case_check_precisions(&c, 0, 0);
    ot_case_destroy(&c);
  }
}

static void costs_are_a_copy(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_BF16, 10, 40)}};
  assert_int_equal(ot_op_infer(OT_OP_KV_SLICE, &few, &types), OT_OK);
  const ot_cost slice = ot_op_cost(OT_OP_KV_SLICE, &few, &types);
  assert_true(slice.bytes_read == 400 && slice.bytes_written == 400 && slice.matrix_flops == 0);
  assert_int_equal(ot_op_infer(OT_OP_HEADS_SCATTER, &few, &types), OT_OK);
  const ot_cost scatter = ot_op_cost(OT_OP_HEADS_SCATTER, &few, &types);
  assert_true(scatter.bytes_read == 800 && scatter.bytes_written == 800);
}

static void rejects_what_cannot_be_shared(void **state) {
  (void)state;
  ot_op_attributes a = few;
  a.context_size = 4;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 12, 40)}};
  assert_int_equal(ot_op_infer(OT_OP_HEADS_SCATTER, &a, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "heads_scatter: 4 heads and 2 kv heads cannot be shared by 4 ranks (try a "
                      "divisor of both)");
  a.context_size = 5;
  assert_int_equal(ot_op_infer(OT_OP_SEQUENCE_JOIN, &a, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "sequence_join: 12 rows are not divisible by 5 ranks");
  a.context_size = 3;
  assert_int_equal(ot_op_infer(OT_OP_SEQUENCE_SPLIT, &a, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "sequence_split: 4 rows of a rank are not whole blocks of 3");
}

// ---- attention with exchanged heads ----

typedef struct exchange {
  int c;
  int64_t B, T, H, G, D;
  ot_case whole, whole_grad;
} exchange;

static ot_op_attributes whole_attributes(const exchange *e) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .sequence_length = e->T,
                            .num_heads = e->H,
                            .num_kv_heads = e->G,
                            .head_dim = e->D,
                            .window = 50,
                            .scale = 0.5,
                            .dropout = 0.2,
                            .seed = 11,
                            .rng_stream = 5,
                            .first_head = FIRST_HEAD};
}

static ot_case attention_case(const exchange *e, const ot_op_attributes *a) {
  const int64_t R = e->B * e->T;
  ot_case c = {
      .kind = OT_OP_ATTENTION,
      .attributes = *a,
      .types = {.in = {ot_type_matrix(OT_F64, R, (a->num_heads + 2 * a->num_kv_heads) * e->D),
                       ot_type_vector(OT_I32, R), ot_type_vector(OT_I64, e->B)}}};
  ot_case_create(&c);
  for (int64_t r = 0; r < R; r++) ot_case_set(&c.in[1], r, (double)(r % e->T / 37 * 37));
  for (int64_t b = 0; b < e->B; b++) ot_case_set(&c.in[2], b, 40 + (double)b);
  return c;
}

static ot_case gradient_case(const ot_case *f) {
  ot_case c = {.kind = OT_OP_ATTENTION_GRAD,
               .attributes = f->attributes,
               .types = {.in = {f->types.out[0], f->types.in[0], f->types.in[1], f->types.in[2],
                                f->types.out[0], f->types.out[1]}}};
  ot_case_create(&c);
  for (int i = 0; i < 3; i++) copy_values(&f->in[i], &c.in[1 + i]);
  for (int i = 0; i < 2; i++) copy_values(&f->out[i], &c.in[4 + i]);
  return c;
}

// For the scatter and the ops after it; num_kv_heads is G for q|k|v, 0 for outputs.
static ot_op_attributes copy_attributes(const exchange *e, int64_t num_kv_heads) {
  ot_op_attributes a = whole_attributes(e);
  a.sequence_length = e->T / e->c;
  a.num_kv_heads = num_kv_heads;
  a.context_size = e->c;
  return a;
}

// Element of the whole [B * T, width] that equals element k of the contiguous shard of `rank`.
static int64_t whole_element(const exchange *e, int rank, int64_t k, int64_t width) {
  const int64_t t = e->T / e->c;
  const int64_t row = k / width;
  return (row / t * e->T + rank * t + row % t) * width + k % width;
}

// All blocks that the ranks send to `rank`.
static void exchange_blocks(const exchange *e, const ot_case *sent, int rank,
                            const ot_tensor *received) {
  const int64_t block = ot_type_elements(&received->type) / e->c;
  for (int64_t k = 0; k < block * e->c; k++) {
    ot_case_set(received, k, ot_case_get(&sent[k / block].out[0], rank * block + k % block));
  }
}

// Converts sharded rows `whole` [B * T, W] to whole sequences with local heads: scatter on every
// rank, all-to-all, join. joined [c].
static void to_heads(const exchange *e, const ot_tensor *whole, int64_t num_kv_heads,
                     ot_case *joined) {
  const ot_op_attributes a = copy_attributes(e, num_kv_heads);
  const int64_t width = whole->type.dim[1];
  ot_case scatter[MOST_RANKS];
  for (int rank = 0; rank < e->c; rank++) {
    const ot_tensor_type piece = ot_type_matrix(OT_F64, e->B * e->T / e->c, width);
    scatter[rank] = made(OT_OP_HEADS_SCATTER, &a, piece);
    for (int64_t k = 0; k < ot_type_elements(&piece); k++) {
      const double value = ot_case_get(whole, whole_element(e, rank, k, width));
      ot_case_set(&scatter[rank].in[0], k, value);
    }
    ot_case_run(&scatter[rank]);
  }
  for (int rank = 0; rank < e->c; rank++) {
    joined[rank] = made(OT_OP_SEQUENCE_JOIN, &a, scatter[rank].types.out[0]);
    exchange_blocks(e, scatter, rank, &joined[rank].in[0]);
    ot_case_run(&joined[rank]);
  }
  for (int rank = 0; rank < e->c; rank++) ot_case_destroy(&scatter[rank]);
}

// The reverse: split on every rank, all-to-all, gather; assembles found [B * T, W].
static void from_heads(const exchange *e, const ot_case *shares, int64_t num_kv_heads,
                       double *found) {
  const ot_op_attributes a = copy_attributes(e, num_kv_heads);
  ot_case split[MOST_RANKS];
  for (int rank = 0; rank < e->c; rank++) {
    split[rank] = made(OT_OP_SEQUENCE_SPLIT, &a, shares[rank].types.out[0]);
    copy_values(&shares[rank].out[0], &split[rank].in[0]);
    ot_case_run(&split[rank]);
  }
  for (int rank = 0; rank < e->c; rank++) {
    ot_case gather = made(OT_OP_HEADS_GATHER, &a, split[rank].types.out[0]);
    exchange_blocks(e, split, rank, &gather.in[0]);
    ot_case_run(&gather);
    const int64_t width = gather.types.out[0].dim[1];
    for (int64_t k = 0; k < ot_type_elements(&gather.types.out[0]); k++) {
      found[whole_element(e, rank, k, width)] = ot_case_get(&gather.out[0], k);
    }
    ot_case_destroy(&gather);
  }
  for (int rank = 0; rank < e->c; rank++) ot_case_destroy(&split[rank]);
}

// Attention on the local heads of each rank.
static void run_shares(const exchange *e, const ot_case *joined, ot_case *forward) {
  for (int rank = 0; rank < e->c; rank++) {
    ot_op_attributes a = whole_attributes(e);
    a.num_heads = e->H / e->c;
    a.num_kv_heads = e->G / e->c;
    a.first_head += rank * a.num_heads;
    forward[rank] = attention_case(e, &a);
    copy_values(&joined[rank].out[0], &forward[rank].in[0]);
    ot_case_run(&forward[rank]);
  }
}

static void run_exchange(exchange *e, double *o, double *dqkv) {
  ot_case joined[MOST_RANKS], forward[MOST_RANKS], backward[MOST_RANKS];
  to_heads(e, &e->whole.in[0], e->G, joined);
  run_shares(e, joined, forward);
  from_heads(e, forward, 0, o);
  for (int rank = 0; rank < e->c; rank++) ot_case_destroy(&joined[rank]);
  to_heads(e, &e->whole_grad.in[0], 0, joined);
  for (int rank = 0; rank < e->c; rank++) {
    backward[rank] = gradient_case(&forward[rank]);
    copy_values(&joined[rank].out[0], &backward[rank].in[0]);
    ot_case_run(&backward[rank]);
  }
  from_heads(e, backward, e->G, dqkv);
  for (int rank = 0; rank < e->c; rank++) {
    ot_case_destroy(&joined[rank]);
    ot_case_destroy(&forward[rank]);
    ot_case_destroy(&backward[rank]);
  }
}

static void exchanged_heads_equal_one_rank(void **state) {
  (void)state;
  enum { MOST_ELEMENTS = 2 * 160 * 16 * 9 };
  static double o[MOST_ELEMENTS], dqkv[MOST_ELEMENTS];
  const exchange cases[] = {{1, 2, 70, 3, 1, 5, {0}, {0}},
                            {2, 2, 150, 8, 4, 9, {0}, {0}},
                            {4, 1, 160, 4, 4, 8, {0}, {0}},
                            {4, 2, 132, 8, 4, 3, {0}, {0}}};
  for (int k = 0; k < 4; k++) {
    exchange e = cases[k];
    const ot_op_attributes a = whole_attributes(&e);
    e.whole = attention_case(&e, &a);
    ot_case_run(&e.whole);
    e.whole_grad = gradient_case(&e.whole);
    ot_case_run(&e.whole_grad);
    assert_true(ot_type_elements(&e.whole.types.in[0]) <= MOST_ELEMENTS);
    run_exchange(&e, o, dqkv);
    ot_case_expect(&e.whole.out[0], o, 0, "o");
    ot_case_expect(&e.whole_grad.out[0], dqkv, 1e-13, "dqkv");
    ot_case_destroy(&e.whole);
    ot_case_destroy(&e.whole_grad);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_invert_exactly),
      cmocka_unit_test(scatter_puts_the_heads_of_a_rank_together),
      cmocka_unit_test(scatter_takes_outputs_of_attention_too),
      cmocka_unit_test(join_orders_rows_by_sequence_and_position),
      cmocka_unit_test(slice_and_join_keep_the_order_of_qkv),
      cmocka_unit_test(join_of_gradients_rounds_to_the_type_that_is_given),
      cmocka_unit_test(gradients_are_the_inverse_copies),
      cmocka_unit_test(costs_are_a_copy),
      cmocka_unit_test(rejects_what_cannot_be_shared),
      cmocka_unit_test(exchanged_heads_equal_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
