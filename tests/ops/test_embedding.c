// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Token and position embeddings against their formula, the gradient against a plain
// loop and differences, with repeated ids, for storage types, threads and shapes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t rows, vocabulary, columns, positions;  // positions 0: no position table
  double scale;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 0, 0},       {7, 5, 3, 4, 0},       {33, 10, 130, 0, 11.5}, {9, 3, 17, 20, 1},
    {5, 40, 2050, 300, 0}, {200, 30, 100, 50, 0}, {600, 7, 3, 50, 0},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static void set_ids(const ot_tensor *ids, int64_t bound, int64_t step) {
  for (int64_t i = 0; ids->data && i < ids->type.dim[0]; i++) {
    ot_case_set(ids, i, (double)((i * step + 1) % bound));
  }
}

static ot_case embedding_case(shape s) {
  const ot_tensor_type absent = {0};
  const bool positions = s.positions > 0;
  ot_case c = {
      .kind = OT_OP_EMBEDDING,
      .attributes = {.threads = 2, .compute = OT_F64, .scale = s.scale},
      .types = {.in = {ot_type_vector(OT_I32, s.rows),
                       ot_type_matrix(OT_F64, s.vocabulary, s.columns),
                       positions ? ot_type_vector(OT_I32, s.rows) : absent,
                       positions ? ot_type_matrix(OT_F64, s.positions, s.columns) : absent}}};
  ot_case_create(&c);
  set_ids(&c.in[0], s.vocabulary, 3);
  if (positions) set_ids(&c.in[2], s.positions, 5);
  return c;
}

static ot_case grad_case(shape s) {
  ot_case c = {
      .kind = OT_OP_EMBEDDING_GRAD,
      .attributes = {.threads = 2, .compute = OT_F64, .scale = s.scale},
      .types = {.in = {ot_type_matrix(OT_F64, s.rows, s.columns), ot_type_vector(OT_I32, s.rows)},
                .out = {ot_type_matrix(OT_F64, s.vocabulary, s.columns)}}};
  ot_case_create(&c);
  set_ids(&c.in[1], s.vocabulary, 3);
  return c;
}

static double expected_value(const ot_case *c, shape s, int64_t row, int64_t column) {
  const int64_t token = (int64_t)ot_case_get(&c->in[0], row);
  const double scale = s.scale == 0 ? 1 : s.scale;
  const double value = scale * ot_case_get(&c->in[1], token * s.columns + column);
  if (s.positions == 0) return value;
  const int64_t position = (int64_t)ot_case_get(&c->in[2], row);
  return value + ot_case_get(&c->in[3], position * s.columns + column);
}

static void gathers_rows_of_both_tables(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = embedding_case(s);
    double *const y = calloc((size_t)(s.rows * s.columns), sizeof *y);
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      y[k] = expected_value(&c, s, k / s.columns, k % s.columns);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 0, "y");
    ot_case_check_precisions(&c, 1e-7, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void adds_rows_into_the_table_in_their_order(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = grad_case(s);
    const int64_t elements = s.vocabulary * s.columns;
    double *const expected = calloc((size_t)elements, sizeof *expected);
    for (int64_t k = 0; k < s.rows * s.columns; k++) {
      const int64_t token = (int64_t)ot_case_get(&c.in[1], k / s.columns);
      expected[token * s.columns + k % s.columns] +=
          (s.scale == 0 ? 1 : s.scale) * ot_case_get(&c.in[0], k);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], expected, 1e-14, "dtable");
    ot_case_check_precisions(&c, 1e-6, 1e-6);
    free(expected);
    ot_case_destroy(&c);
  }
}

static void gradients_reach_both_tables(void **state) {
  (void)state;
  for (int i = 1; i < 4; i++) {
    ot_case c = embedding_case((shape){7, 5, 3, i == 1 ? 4 : 0, i == 3 ? 2.5 : 0});
    ot_case_check_gradients(&c, 1e-3, 1e-9);
    ot_case_destroy(&c);
  }
}

// ---- shards of the vocabulary ----

// Case of shard `i` of `k` of `whole`: its part of the table, all other operands unchanged.
static ot_case shard_case(const ot_case *whole, shape s, int i, int k) {
  const int64_t first = s.vocabulary * i / k;
  ot_case c = *whole;
  c.attributes.group_size = k;
  c.attributes.first_vocab = first;
  c.types.in[1].dim[0] = s.vocabulary * (i + 1) / k - first;
  memset(c.types.out, 0, sizeof c.types.out);
  ot_case_create(&c);
  for (int in = 0; in < 4; in++) {
    const int64_t skipped = in == 1 ? first * s.columns : 0;
    for (int64_t e = 0; e < ot_type_elements(&c.types.in[in]); e++) {
      ot_case_set(&c.in[in], e, ot_case_get(&whole->in[in], skipped + e));
    }
  }
  return c;
}

static void one_shard_gives_each_row_and_the_others_zero(void **state) {
  (void)state;
  for (int n = 0; n < 3 * NUM_SHAPES; n++) {
    const shape s = shapes[n / 3];
    const int k = n % 3 + 1;
    if (s.vocabulary < k) continue;
    const int64_t elements = s.rows * s.columns;
    ot_case whole = embedding_case(s);
    ot_case_run(&whole);
    double *const sum = calloc((size_t)elements, sizeof *sum);
    int *const givers = calloc((size_t)s.rows, sizeof *givers);
    for (int i = 0; i < k; i++) {
      ot_case c = shard_case(&whole, s, i, k);
      ot_case_run(&c);
      if (k == 2 && i == 1) ot_case_check_precisions(&c, 1e-7, 4e-3);
      for (int64_t e = 0; e < elements; e++) sum[e] += ot_case_get(&c.out[0], e);
      for (int64_t r = 0; r < s.rows; r++) {
        givers[r] += ot_case_get(&c.out[0], r * s.columns) != 0;
      }
      ot_case_destroy(&c);
    }
    ot_case_expect(&whole.out[0], sum, 0, "sum of shards");
    for (int64_t r = 0; r < s.rows; r++) assert_true(givers[r] <= 1);
    free(sum);
    free(givers);
    ot_case_destroy(&whole);
  }
}

static void a_shard_takes_the_gradient_of_its_own_ids(void **state) {
  (void)state;
  for (int n = 0; n < 3 * NUM_SHAPES; n++) {
    const shape s = shapes[n / 3];
    const int k = n % 3 + 1;
    if (s.vocabulary < k) continue;
    ot_case whole = grad_case(s);
    ot_case_run(&whole);
    for (int i = 0; i < k; i++) {
      const int64_t first = s.vocabulary * i / k;
      ot_case c = whole;
      c.attributes.group_size = k;
      c.attributes.first_vocab = first;
      c.types.out[0].dim[0] = s.vocabulary * (i + 1) / k - first;
      ot_case_create(&c);
      set_ids(&c.in[1], s.vocabulary, 3);
      ot_case_run(&c);
      // The same rows in the same order: the same bits.
      assert_memory_equal(c.out[0].data, (double *)whole.out[0].data + first * s.columns,
                          (size_t)ot_type_bytes(&c.types.out[0]));
      if (k == 3 && i == 1) ot_case_check_precisions(&c, 1e-6, 1e-6);
      ot_case_destroy(&c);
    }
    ot_case_destroy(&whole);
  }
}

// The token table is sharded; every shard adds all positions, whatever the tokens.
static void the_position_gradient_is_whole_in_every_shard(void **state) {
  (void)state;
  const shape s = {7, 5, 3, 4, 0};
  const ot_vjp_step *const step = &ot_op_info_of(OT_OP_EMBEDDING)->vjp[1];
  assert_int_equal(step->op, OT_OP_POSITION_GRAD);
  ot_case c = {
      .kind = step->op,
      .attributes = {.threads = 1, .compute = OT_F64, .group_size = 2, .first_vocab = 3},
      .types = {.in = {ot_type_matrix(OT_F64, s.rows, s.columns), ot_type_vector(OT_I32, s.rows)},
                .out = {ot_type_matrix(OT_F64, s.positions, s.columns)}}};
  ot_case_create(&c);
  set_ids(&c.in[1], s.positions, 5);
  ot_case_run(&c);
  double expected[4 * 3] = {0};
  for (int64_t e = 0; e < s.rows * s.columns; e++) {
    const int64_t position = (int64_t)ot_case_get(&c.in[1], e / s.columns);
    expected[position * s.columns + e % s.columns] += ot_case_get(&c.in[0], e);
  }
  ot_case_expect(&c.out[0], expected, 1e-15, "dposition_table");
  ot_case_check_precisions(&c, 1e-6, 1e-6);
  ot_case_destroy(&c);
}

static void a_shard_costs_its_share(void **state) {
  (void)state;
  ot_op_attributes attributes = {.threads = 1, .compute = OT_F32};
  ot_op_types types = {.in = {ot_type_vector(OT_I32, 8), ot_type_matrix(OT_F32, 9, 6)},
                       .out = {ot_type_matrix(OT_F32, 8, 6)}};
  assert_true(ot_op_cost(OT_OP_EMBEDDING, &attributes, &types).bytes_read == 8 * 4 + 8 * 6 * 4);
  attributes.group_size = 4;
  const ot_cost cost = ot_op_cost(OT_OP_EMBEDDING, &attributes, &types);
  assert_true(cost.bytes_read == 8 * 4 + 2 * 6 * 4 && cost.bytes_written == 8 * 6 * 4);
}

static void refuses_a_scale_together_with_positions(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 9, 6),
                              ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 8, 6)}};
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .scale = 2};
  assert_int_equal(ot_op_infer(OT_OP_EMBEDDING, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "embedding: scale 2 together with positions is not supported");
}

static void stores_the_rows_as_the_builder_asks(void **state) {
  (void)state;
  ot_case c = {.kind = OT_OP_EMBEDDING,
               .attributes = {.threads = 1, .compute = OT_F32},
               .types = {.in = {ot_type_vector(OT_I32, 4), ot_type_matrix(OT_F32, 9, 6)},
                         .out = {ot_type_vector(OT_BF16, 1)}}};
  ot_case_create(&c);
  assert_int_equal(c.types.out[0].dtype, OT_BF16);
  assert_int_equal(ot_type_elements(&c.types.out[0]), 24);
  ot_case_run(&c);
  for (int64_t i = 0; i < 6; i++) {
    assert_true(ot_case_get(&c.out[0], i) == ot_case_get(&c.in[1], i));
  }
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers_rows_of_both_tables),
      cmocka_unit_test(adds_rows_into_the_table_in_their_order),
      cmocka_unit_test(gradients_reach_both_tables),
      cmocka_unit_test(one_shard_gives_each_row_and_the_others_zero),
      cmocka_unit_test(a_shard_takes_the_gradient_of_its_own_ids),
      cmocka_unit_test(the_position_gradient_is_whole_in_every_shard),
      cmocka_unit_test(a_shard_costs_its_share),
      cmocka_unit_test(refuses_a_scale_together_with_positions),
      cmocka_unit_test(stores_the_rows_as_the_builder_asks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
