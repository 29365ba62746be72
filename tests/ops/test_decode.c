// SPDX-License-Identifier: Apache-2.0
// run: serial. The KV cache: where tokens are appended, and one query against it, equal to the last
// row of attention over the same tokens.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t B, P, H, G, D, window;
  double soft_cap;
  bool sinks;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, 0, false},   {2, 9, 3, 1, 5, 0, 0, false},
    {3, 70, 6, 2, 16, 0, 0, false}, {2, 40, 4, 4, 33, 6, 0, false},
    {1, 33, 2, 1, 8, 33, 0, false}, {2, 40, 6, 2, 20, 30, 0.4, false},
    {2, 40, 6, 2, 20, 30, 0, true}, {2, 150, 18, 2, 8, 70, 0, true},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_op_attributes attributes_of(shape s) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_heads = s.H,
                            .num_kv_heads = s.G,
                            .head_dim = s.D,
                            .window = s.window,
                            .scale = 0.25,
                            .soft_cap = s.soft_cap};
}

static ot_tensor_type cache_type(ot_dtype dtype, shape s) {
  return (ot_tensor_type){.dtype = dtype, .rank = 3, .dim = {s.B, s.P, 2 * s.G * s.D}};
}

static int64_t width_of(shape s) { return (s.H + 2 * s.G) * s.D; }

// Tokens before the current one; the cache is full for the last sequence.
static int64_t length_of(shape s, int64_t b) { return b == s.B - 1 ? s.P - 1 : (b * 5 + 3) % s.P; }

static ot_case decode_case(shape s) {
  ot_case c = {.kind = OT_OP_ATTENTION_DECODE,
               .attributes = attributes_of(s),
               .types = {.in = {ot_type_matrix(OT_F64, s.B, width_of(s)), cache_type(OT_F64, s),
                                ot_type_vector(OT_I32, s.B)}}};
  if (s.sinks) c.types.in[3] = ot_type_vector(OT_F64, s.H);
  return c;
}

static void create_decode(ot_case *c, shape s) {
  ot_case_create(c);
  for (int64_t b = 0; b < s.B; b++) ot_case_set(&c->in[2], b, (double)length_of(s, b));
}

// The same with the training operator: sequence b alone, its last row.
static void expect_last_row_of_attention(const ot_case *decode, shape s, int64_t b) {
  const int64_t T = length_of(s, b) + 1;
  const int64_t width = width_of(s), kv = 2 * s.G * s.D, q = s.H * s.D;
  ot_case c = {.kind = OT_OP_ATTENTION,
               .attributes = attributes_of(s),
               .types = {.in = {ot_type_matrix(OT_F64, T, width)}}};
  c.attributes.sequence_length = T;
  if (s.sinks) c.types.in[3] = ot_type_vector(OT_F64, s.H);
  ot_case_create(&c);
  for (int64_t h = 0; s.sinks && h < s.H; h++) {
    ot_case_set(&c.in[3], h, ot_case_get(&decode->in[3], h));
  }
  for (int64_t t = 0; t < T; t++) {
    for (int64_t i = 0; i < kv; i++) {
      ot_case_set(&c.in[0], t * width + q + i, ot_case_get(&decode->in[1], (b * s.P + t) * kv + i));
    }
  }
  for (int64_t i = 0; i < q; i++) {
    ot_case_set(&c.in[0], (T - 1) * width + i, ot_case_get(&decode->in[0], b * width + i));
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < q; i++) {
    const double want = ot_case_get(&c.out[0], (T - 1) * q + i);
    const double found = ot_case_get(&decode->out[0], b * q + i);
    assert_true(fabs(found - want) <= 1e-13 * (1 + fabs(want)));
  }
  ot_case_destroy(&c);
}

static void one_query_is_the_last_row_of_attention(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    ot_case c = decode_case(shapes[k]);
    create_decode(&c, shapes[k]);
    ot_case_run(&c);
    for (int64_t b = 0; b < shapes[k].B; b++) expect_last_row_of_attention(&c, shapes[k], b);
    ot_case_check_precisions(&c, 2e-6, 8e-3);
    ot_case_destroy(&c);
  }
}

static void slots_beyond_the_length_are_not_read(void **state) {
  (void)state;
  const shape s = {2, 9, 3, 1, 5, 0, 0, false};
  ot_case c = decode_case(s);
  create_decode(&c, s);
  const int64_t kv = 2 * s.G * s.D;
  for (int64_t b = 0; b < s.B; b++) {
    for (int64_t i = (length_of(s, b) + 1) * kv; i < s.P * kv; i++) {
      ot_case_set(&c.in[1], b * s.P * kv + i, NAN);
    }
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < s.B * s.H * s.D; i++) assert_false(isnan(ot_case_get(&c.out[0], i)));
  ot_case_destroy(&c);
}

enum { NEW_ROWS = 2, SHIFT = 3 };

// Expected element `n` of the cache if sequence b had SHIFT * b tokens before.
static double appended(const ot_case *c, const ot_case *before, shape s, int64_t n) {
  const int64_t kv = 2 * s.G * s.D;
  const int64_t b = n / kv / s.P;
  const int64_t t = n / kv % s.P - b * SHIFT;
  if (t < 0 || t >= NEW_ROWS) return ot_case_get(&before->out[0], n);
  return ot_case_get(&c->in[0], (b * NEW_ROWS + t) * width_of(s) + s.H * s.D + n % kv);
}

static void check_append(shape s, ot_dtype storage) {
  ot_case c = {.kind = OT_OP_APPEND_KV, .attributes = attributes_of(s)};
  c.types.in[0] = ot_type_matrix(OT_F64, s.B * NEW_ROWS, width_of(s));
  c.types.in[1] = ot_type_vector(OT_I32, s.B);
  c.types.out[0] = cache_type(storage, s);
  c.attributes.accumulate = true;  // makes the harness keep the content of the cache
  ot_case_create(&c);
  ot_case_fill(&c.out[0], 77, 1, 0);
  ot_case before;
  ot_case_clone(&c, OT_F64, OT_F64, &before);
  for (int64_t b = 0; b < s.B; b++) ot_case_set(&c.in[1], b, (double)(b * SHIFT));
  ot_case_run(&c);
  for (int64_t n = 0; n < ot_type_elements(&c.types.out[0]); n++) {
    assert_true(ot_case_get(&c.out[0], n) == appended(&c, &before, s, n));
  }
  ot_case_destroy(&before);
  ot_case_destroy(&c);
}

static void append_writes_its_rows_and_keeps_the_others(void **state) {
  (void)state;
  const shape s = {3, 8, 3, 1, 5, 0, 0, false};
  check_append(s, OT_F64);
  check_append(s, OT_F32);
  check_append(s, OT_BF16);
}

static void rejects_a_cache_of_other_heads(void **state) {
  (void)state;
  const shape s = {2, 9, 3, 1, 5, 0, 0, false};
  ot_case c = decode_case(s);
  c.types.in[1].dim[2] = 20;
  assert_int_equal(ot_op_infer(c.kind, &c.attributes, &c.types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "attention_decode: cache is fp64 [2, 9, 20], expected fp32, fp64 or bf16 "
                      "[2, ?, 10]");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_query_is_the_last_row_of_attention),
      cmocka_unit_test(slots_beyond_the_length_are_not_read),
      cmocka_unit_test(append_writes_its_rows_and_keeps_the_others),
      cmocka_unit_test(rejects_a_cache_of_other_heads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
