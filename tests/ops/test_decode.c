// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. The paged KV cache: where tokens are appended, and attention against it, equal to
// that row of attention over the same tokens.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/decode.h"
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

static int64_t width_of(shape s) { return (s.H + 2 * s.G) * s.D; }

static int64_t pages_of(shape s) { return (s.P + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS; }

static int64_t all_pages(shape s) { return s.B * pages_of(s) + 3; }

// Pages of a sequence are scattered.
static int64_t page_of(shape s, int64_t b, int64_t i) {
  int64_t step = 7;
  while (all_pages(s) % step == 0) step += 2;
  return (b * pages_of(s) + i) * step % all_pages(s);
}

static ot_tensor_type cache_type(ot_dtype dtype, shape s) {
  return (ot_tensor_type){
      .dtype = dtype, .rank = 3, .dim = {all_pages(s), OT_PAGE_SLOTS, 2 * s.G * s.D}};
}

// First element of a slot in the cache.
static int64_t slot_element(shape s, int64_t b, int64_t slot) {
  const int64_t row = page_of(s, b, slot / OT_PAGE_SLOTS) * OT_PAGE_SLOTS + slot % OT_PAGE_SLOTS;
  return row * 2 * s.G * s.D;
}

// Position of the last new token; the cache is full for the last sequence.
static int64_t last_of(shape s, int64_t b) { return b == s.B - 1 ? s.P - 1 : (b * 5 + 3) % s.P; }

enum { MOST_ROWS = 256 };

// An emulated GPU is slow.
static int64_t new_rows(void) { return getenv("OT_TEST_DEVICE") ? 3 : 21; }

// The new tokens: of each sequence up to new_rows(), and an idle row after each sequence.
typedef struct tokens {
  int64_t count;
  int64_t sequence[MOST_ROWS], position[MOST_ROWS];
} tokens;

static tokens tokens_of(shape s) {
  tokens t = {0};
  for (int64_t b = s.B - 1; b >= 0; b--) {
    const int64_t last = last_of(s, b), rows = new_rows();
    const int64_t first = last < rows ? 0 : last - rows + 1;
    for (int64_t p = first; p <= last; p++) {
      t.sequence[t.count] = b;
      t.position[t.count++] = p;
    }
    t.sequence[t.count++] = -1;
  }
  return t;
}

static void place(const ot_tensor *operands, shape s, const tokens *t) {
  for (int64_t r = 0; r < t->count; r++) {
    ot_case_set(&operands[0], r, (double)t->sequence[r]);
    ot_case_set(&operands[1], r, (double)t->position[r]);
  }
  for (int64_t i = 0; i < s.B * pages_of(s); i++) {
    ot_case_set(&operands[2], i, (double)page_of(s, i / pages_of(s), i % pages_of(s)));
  }
}

static void set_place_types(ot_tensor_type *types, shape s, const tokens *t) {
  types[0] = types[1] = ot_type_vector(OT_I32, t->count);
  types[2] = ot_type_matrix(OT_I32, s.B, pages_of(s));
}

static ot_case decode_case(shape s, const tokens *t) {
  ot_case c = {
      .kind = OT_OP_ATTENTION_DECODE,
      .attributes = attributes_of(s),
      .types = {.in = {ot_type_matrix(OT_F64, t->count, width_of(s)), cache_type(OT_F64, s)}}};
  set_place_types(&c.types.in[2], s, t);
  if (s.sinks) c.types.in[5] = ot_type_vector(OT_F64, s.H);
  return c;
}

static ot_case create_decode(shape s, const tokens *t) {
  ot_case c = decode_case(s, t);
  ot_case_create(&c);
  place(&c.in[2], s, t);
  return c;
}

// The same with the training operator: one sequence alone, its row `r`.
static void expect_row_of_attention(const ot_case *decode, shape s, const tokens *t, int64_t r) {
  const int64_t b = t->sequence[r], T = t->position[r] + 1;
  const int64_t width = width_of(s), kv = 2 * s.G * s.D, q = s.H * s.D;
  ot_case c = {.kind = OT_OP_ATTENTION,
               .attributes = attributes_of(s),
               .types = {.in = {ot_type_matrix(OT_F64, T, width)}}};
  c.attributes.sequence_length = T;
  if (s.sinks) c.types.in[3] = ot_type_vector(OT_F64, s.H);
  ot_case_create(&c);
  for (int64_t h = 0; s.sinks && h < s.H; h++) {
    ot_case_set(&c.in[3], h, ot_case_get(&decode->in[5], h));
  }
  for (int64_t p = 0; p < T; p++) {
    for (int64_t i = 0; i < kv; i++) {
      const double key = ot_case_get(&decode->in[1], slot_element(s, b, p) + i);
      ot_case_set(&c.in[0], p * width + q + i, key);
    }
  }
  for (int64_t i = 0; i < q; i++) {
    ot_case_set(&c.in[0], (T - 1) * width + i, ot_case_get(&decode->in[0], r * width + i));
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < q; i++) {
    const double want = ot_case_get(&c.out[0], (T - 1) * q + i);
    const double found = ot_case_get(&decode->out[0], r * q + i);
    assert_true(fabs(found - want) <= 1e-13 * (1 + fabs(want)));
  }
  ot_case_destroy(&c);
}

static void a_new_token_is_a_row_of_attention(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    const shape s = shapes[k];
    const tokens t = tokens_of(s);
    ot_case c = create_decode(s, &t);
    ot_case_run(&c);
    for (int64_t r = 0; r < t.count; r++) {
      if (t.sequence[r] >= 0) {
        expect_row_of_attention(&c, s, &t, r);
        continue;
      }
      const int64_t q = s.H * s.D;
      for (int64_t i = 0; i < q; i++) assert_true(ot_case_get(&c.out[0], r * q + i) == 0);
    }
    ot_case_check_precisions(&c, 2e-6, 8e-3);
    ot_case_destroy(&c);
  }
}

static void slots_after_the_token_are_not_read(void **state) {
  (void)state;
  const shape s = {2, 9, 3, 1, 5, 0, 0, false};
  const tokens t = tokens_of(s);
  ot_case c = create_decode(s, &t);
  const int64_t kv = 2 * s.G * s.D;
  for (int64_t i = 0; i < ot_type_elements(&c.types.in[1]); i++) {
    const int64_t page = i / kv / OT_PAGE_SLOTS, slot = i / kv % OT_PAGE_SLOTS;
    bool seen = false;
    for (int64_t b = 0; b < s.B; b++) seen |= page == page_of(s, b, 0) && slot <= last_of(s, b);
    if (!seen) ot_case_set(&c.in[1], i, NAN);
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < t.count * s.H * s.D; i++) {
    assert_false(isnan(ot_case_get(&c.out[0], i)));
  }
  ot_case_destroy(&c);
}

// Each row alone, in float32 on the CPU, has the bits that it has among the others.
static void rows_do_not_change_each_other(void **state) {
  (void)state;
  if (getenv("OT_TEST_DEVICE")) skip();
  const shape s = {2, 150, 6, 2, 20, 70, 0, true};
  const tokens t = tokens_of(s);
  ot_case wide = create_decode(s, &t), all;
  ot_case_clone(&wide, OT_F32, OT_F32, &all);
  ot_case_run(&all);
  for (int64_t r = 0; r < t.count; r++) {
    tokens one = {.count = 1};
    one.sequence[0] = t.sequence[r];
    one.position[0] = t.position[r];
    ot_case alone = create_decode(s, &one), c;
    ot_case_clone(&alone, OT_F32, OT_F32, &c);
    memcpy(c.in[1].data, all.in[1].data, (size_t)ot_type_bytes(&all.in[1].type));
    memcpy(c.in[5].data, all.in[5].data, (size_t)ot_type_bytes(&all.in[5].type));
    for (int64_t i = 0; i < width_of(s); i++) {
      ot_case_set(&c.in[0], i, ot_case_get(&all.in[0], r * width_of(s) + i));
    }
    ot_case_run(&c);
    const int64_t bytes = s.H * s.D * (int64_t)sizeof(float);
    assert_memory_equal(c.out[0].data, (const char *)all.out[0].data + r * bytes, bytes);
    ot_case_destroy(&c);
    ot_case_destroy(&alone);
  }
  ot_case_destroy(&all);
  ot_case_destroy(&wide);
}

static void check_append(shape s, ot_dtype storage) {
  const tokens t = tokens_of(s);
  const int64_t kv = 2 * s.G * s.D;
  ot_case c = {.kind = OT_OP_APPEND_KV, .attributes = attributes_of(s)};
  c.types.in[0] = ot_type_matrix(OT_F64, t.count, width_of(s));
  set_place_types(&c.types.in[1], s, &t);
  c.types.out[0] = cache_type(storage, s);
  c.attributes.accumulate = true;  // makes the harness keep the content of the cache
  ot_case_create(&c);
  ot_case_fill(&c.out[0], 77, 1, 0);
  place(&c.in[1], s, &t);
  ot_case expected;
  ot_case_clone(&c, OT_F64, OT_F64, &expected);
  for (int64_t r = 0; r < t.count; r++) {
    for (int64_t i = 0; i < kv && t.sequence[r] >= 0; i++) {
      ot_case_set(&expected.out[0], slot_element(s, t.sequence[r], t.position[r]) + i,
                  ot_case_get(&c.in[0], r * width_of(s) + s.H * s.D + i));
    }
  }
  ot_case_run(&c);
  for (int64_t n = 0; n < ot_type_elements(&c.types.out[0]); n++) {
    assert_true(ot_case_get(&c.out[0], n) == ot_case_get(&expected.out[0], n));
  }
  ot_case_destroy(&expected);
  ot_case_destroy(&c);
}

static void append_writes_its_rows_and_keeps_the_others(void **state) {
  (void)state;
  const shape s = {3, 40, 3, 1, 5, 0, 0, false};
  check_append(s, OT_F64);
  check_append(s, OT_F32);
  check_append(s, OT_BF16);
}

static void rejects_a_cache_of_other_heads(void **state) {
  (void)state;
  const shape s = {2, 9, 3, 1, 5, 0, 0, false};
  const tokens t = tokens_of(s);
  ot_case c = decode_case(s, &t);
  c.types.in[1].dim[2] = 20;
  assert_int_equal(ot_op_infer(c.kind, &c.attributes, &c.types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "attention_decode: cache is fp64 [5, 16, 20], expected fp32, fp64 or bf16 "
                      "[?, 16, 10]");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_token_is_a_row_of_attention),
      cmocka_unit_test(slots_after_the_token_are_not_read),
      cmocka_unit_test(rows_do_not_change_each_other),
      cmocka_unit_test(append_writes_its_rows_and_keeps_the_others),
      cmocka_unit_test(rejects_a_cache_of_other_heads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
