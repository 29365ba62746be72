// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. MLA copies and rotations against their definitions, gradients against differences,
// and its decode form with a cache against attention over all rows.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { R = 7, H = 3, N = 5, P = 4, D = N + P, V = 6, K = 11, POSITIONS = 16, PAGE = 2 };

// All widths but H are `times` those above.
static ot_op_attributes attributes_of(bool interleaved, int times) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_heads = H,
                            .num_kv_heads = H,
                            .head_dim = times * D,
                            .rotary_dim = times * P,
                            .value_dim = times * V,
                            .interleaved = interleaved,
                            .sequence_length = R,
                            .scale = 0.4};
}

static double angle_of(int position, int pair) { return position * 0.7 / (1 + 7 * pair); }

static void set_rotation(const ot_tensor *positions, const ot_tensor *table, int first) {
  for (int64_t r = 0; r < positions->type.dim[0]; r++)
    ot_case_set(positions, r, (double)(first + r));
  const int pairs = (int)table->type.dim[1];
  for (int i = 0; i < POSITIONS * pairs; i++) {
    ot_case_set(table, 2 * i, cos(angle_of(i / pairs, i % pairs)));
    ot_case_set(table, 2 * i + 1, sin(angle_of(i / pairs, i % pairs)));
  }
}

static ot_tensor_type table_type(int times) {
  return (ot_tensor_type){.dtype = OT_F64, .rank = 3, .dim = {POSITIONS, times * P / 2, 2}};
}

static ot_case heads_case(bool interleaved, int times) {
  ot_case c = {.kind = OT_OP_LATENT_HEADS,
               .attributes = attributes_of(interleaved, times),
               .types = {.in = {ot_type_matrix(OT_F64, R, times * H * D),
                                ot_type_matrix(OT_F64, R, times * H * (N + V)),
                                ot_type_matrix(OT_F64, R, times * P), ot_type_vector(OT_I32, R),
                                table_type(times)}},
               .statistic_inputs = 1u << 4};
  ot_case_create(&c);
  set_rotation(&c.in[3], &c.in[4], 2);
  return c;
}

static double at(const ot_tensor *tensor, int64_t row, int64_t column) {
  return ot_case_get(tensor, row * tensor->type.dim[1] + column);
}

// Element i of the rotated part at column `from`, at the position of row r.
static double rotated(const ot_case *c, const ot_tensor *tensor, int r, int from, int i) {
  const int half = (int)c->attributes.rotary_dim / 2, pair = i % half;
  const bool together = c->attributes.interleaved;
  const double x = at(tensor, r, from + (together ? 2 * pair : pair));
  const double y = at(tensor, r, from + (together ? 2 * pair + 1 : pair + half));
  const double a = angle_of(r + 2, pair);
  return i < half ? x * cos(a) - y * sin(a) : y * cos(a) + x * sin(a);
}

static void expect_head(const ot_case *c, int r, int h) {
  const int times = (int)c->attributes.head_dim / D, d = times * D, n = times * N, v = times * V;
  const ot_tensor *const in = c->in, *const y = &c->out[0];
  for (int i = 0; i < d; i++) {
    const double query = i < n ? at(&in[0], r, h * d + i) : rotated(c, &in[0], r, h * d + n, i - n);
    const double key = i < n ? at(&in[1], r, h * (n + v) + i) : rotated(c, &in[2], r, 0, i - n);
    const double value = i < v ? at(&in[1], r, h * (n + v) + n + i) : 0;
    assert_true(fabs(at(y, r, h * d + i) - query) < 1e-14);
    assert_true(fabs(at(y, r, (H + h) * d + i) - key) < 1e-14);
    assert_true(fabs(at(y, r, (2 * H + h) * d + i) - value) < 1e-14);
  }
}

static void heads_are_packed_rotated_and_filled_up(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    ot_case c = heads_case(i % 2 == 1, i < 2 ? 1 : 8);
    ot_case_run(&c);
    for (int j = 0; j < R * H; j++) expect_head(&c, j / H, j % H);
    ot_case_check_precisions(&c, 2e-6, 8e-3);
    ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

// Rows of K + P columns, then such whose parts are multiples of 16 bytes.
static void latents_and_rotary_parts_are_split(void **state) {
  (void)state;
  for (int times = 1; times <= 8; times += 7) {
    const int k = times * K, columns = times * (K + P);
    ot_case c = {.kind = OT_OP_LATENT_SPLIT,
                 .attributes = attributes_of(false, times),
                 .types = {.in = {ot_type_matrix(OT_F64, R, columns)}}};
    ot_case_create(&c);
    ot_case_run(&c);
    for (int i = 0; i < R * columns; i++) {
      const int r = i / columns, j = i % columns;
      const double found = j < k ? at(&c.out[0], r, j) : at(&c.out[1], r, j - k);
      assert_true(found == ot_case_get(&c.in[0], i));
    }
    ot_case_check_precisions(&c, 0, 0);
    ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

static void values_are_cut_to_their_width(void **state) {
  (void)state;
  for (int times = 1; times <= 8; times += 7) {
    const int v = times * V;
    ot_case c = {.kind = OT_OP_VALUE_TRIM,
                 .attributes = attributes_of(false, times),
                 .types = {.in = {ot_type_matrix(OT_F64, R, times * H * D)}}};
    ot_case_create(&c);
    ot_case_run(&c);
    for (int i = 0; i < R * H * v; i++) {
      const int r = i / (H * v), h = i / v % H;
      assert_true(ot_case_get(&c.out[0], i) == at(&c.in[0], r, h * times * D + i % v));
    }
    ot_case_check_precisions(&c, 0, 0);
    ot_case_check_gradients(&c, 1e-3, 1e-10);
    ot_case_destroy(&c);
  }
}

// ---- with a cache ----

// Appends latents and rotary parts of R tokens of one sequence to a cache token by token, with the
// projection to keys and values.
static ot_case cache_case(const ot_case *rows) {
  ot_case c = {
      .kind = OT_OP_APPEND_LATENT,
      .attributes = rows->attributes,
      .types = {.in = {ot_type_matrix(OT_F64, R, K), rows->types.in[2], rows->types.in[3],
                       rows->types.in[4], ot_type_vector(OT_I32, R), ot_type_matrix(OT_I32, 2, 1)},
                .out = {{.dtype = OT_F64, .rank = 3, .dim = {3, 16, K + P}}}}};
  ot_case_create(&c);
  for (int i = 0; i < R; i++) ot_case_set(&c.in[4], i, 1);
  ot_case_set(&c.in[5], 1, PAGE);
  for (int i = 0; i < R * P; i++) ot_case_set(&c.in[1], i, ot_case_get(&rows->in[2], i));
  set_rotation(&c.in[2], &c.in[3], 0);  // scores depend on distances only
  c.attributes.accumulate = true;
  ot_case_run(&c);
  return c;
}

static void make_keys_and_values(const ot_case *rows, const ot_tensor *latent, const ot_tensor *w) {
  for (int i = 0; i < R * H * (N + V); i++) {
    double sum = 0;
    for (int k = 0; k < K; k++)
      sum += at(latent, i / (H * (N + V)), k) * at(w, i % (H * (N + V)), k);
    ot_case_set(&rows->in[1], i, sum);
  }
}

// Element v of head h of the last row, by the definition of attention over packed rows.
static double attended(const ot_case *rows, int h, int v) {
  double weight[R], sum = 0, result = 0;
  for (int s = 0; s < R; s++) {
    double score = 0;
    for (int i = 0; i < D; i++) {
      score += at(&rows->out[0], R - 1, h * D + i) * at(&rows->out[0], s, (H + h) * D + i);
    }
    weight[s] = exp(score * rows->attributes.scale);
    sum += weight[s];
  }
  for (int s = 0; s < R; s++) result += weight[s] / sum * at(&rows->out[0], s, (2 * H + h) * D + v);
  return result;
}

static void a_latent_cache_equals_a_kv_cache(void **state) {
  (void)state;
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    ot_case rows = heads_case(interleaved == 1, 1);
    ot_case cache = cache_case(&rows);
    ot_case c = {
        .kind = OT_OP_LATENT_DECODE, .attributes = rows.attributes, .statistic_inputs = 1u << 4};
    c.types.in[0] = ot_type_matrix(OT_F64, 1, H * D);
    c.types.in[1] = ot_type_matrix(OT_F64, H * (N + V), K);
    c.types.in[2] = cache.types.out[0];
    c.types.in[3] = c.types.in[5] = ot_type_vector(OT_I32, 1);
    c.types.in[4] = table_type(1);
    c.types.in[6] = ot_type_matrix(OT_I32, 2, 1);
    ot_case_create(&c);
    make_keys_and_values(&rows, &cache.in[0], &c.in[1]);
    ot_case_run(&rows);
    for (int i = 0; i < H * D; i++) ot_case_set(&c.in[0], i, at(&rows.in[0], R - 1, i));
    for (int64_t i = 0; i < ot_type_elements(&c.types.in[2]); i++) {
      ot_case_set(&c.in[2], i, ot_case_get(&cache.out[0], i));
    }
    set_rotation(&c.in[3], &c.in[4], R - 1);
    ot_case_set(&c.in[5], 0, 1);
    ot_case_set(&c.in[6], 1, PAGE);
    ot_case_run(&c);
    for (int i = 0; i < H * V; i++) {
      assert_true(fabs(ot_case_get(&c.out[0], i) - attended(&rows, i / V, i % V)) < 1e-13);
    }
    ot_case_check_precisions(&c, 1e-5, 3e-2);
    ot_case_destroy(&c);
    ot_case_destroy(&cache);
    ot_case_destroy(&rows);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_are_packed_rotated_and_filled_up),
      cmocka_unit_test(latents_and_rotary_parts_are_split),
      cmocka_unit_test(values_are_cut_to_their_width),
      cmocka_unit_test(a_latent_cache_equals_a_kv_cache),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
