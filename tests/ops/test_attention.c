// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Attention against its definition with a full T x T matrix in float64, its gradients
// against differences, over shapes, windows, documents, dropout, storage types and thread counts.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/attention.h"
#include "support/op_case.h"

typedef struct shape {
  int64_t B, T, H, G, D, window;
  bool documents;
  double dropout, soft_cap;
  bool sinks;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, false, 0, 0, false},         {2, 7, 3, 1, 5, 0, false, 0, 0, false},
    {1, 64, 2, 2, 16, 0, false, 0, 0, false},       {3, 65, 6, 2, 8, 0, true, 0, 0, false},
    {1, 131, 3, 1, 24, 9, false, 0, 0, false},      {2, 130, 2, 1, 33, 70, true, 0, 0, false},
    {1, 200, 4, 4, 64, 1, true, 0, 0, false},       {2, 100, 3, 3, 12, 0, true, 0.25, 0, false},
    {1, 193, 2, 1, 80, 128, false, 0, 0, false},    {1, 70, 6, 2, 4, 20, true, 0.5, 0, false},
    {2, 140, 6, 2, 12, 50, true, 0.25, 1.5, false}, {1, 70, 2, 1, 5, 0, false, 0, 0.7, false},
    {2, 140, 6, 2, 12, 50, true, 0.25, 0, true},    {1, 70, 2, 2, 5, 0, true, 0, 0.7, true},
    {1, 150, 2, 1, 128, 0, false, 0, 0, false},     {2, 200, 2, 1, 64, 90, true, 0, 0, true},
};

enum { FIRST_SINK = 2 };  // of the sinks passed to the op, one more than needed

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_op_attributes attributes_of(shape s) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .sequence_length = s.T,
                            .num_heads = s.H,
                            .num_kv_heads = s.G,
                            .head_dim = s.D,
                            .window = s.window,
                            .scale = 0.5,
                            .soft_cap = s.soft_cap,
                            .dropout = s.dropout,
                            .seed = 11,
                            .rng_stream = 5,
                            .first_head = 9,
                            .first_sink = s.sinks ? FIRST_SINK : 0};
}

static ot_case attention_case(shape s) {
  const int64_t R = s.B * s.T;
  ot_case c = {.kind = OT_OP_ATTENTION,
               .attributes = attributes_of(s),
               .types = {.in = {ot_type_matrix(OT_F64, R, (s.H + 2 * s.G) * s.D)},
                         .out = {[2] = ot_type_vector(OT_F64, 1)}}};
  if (s.documents) c.types.in[1] = ot_type_vector(OT_I32, R);
  if (s.dropout > 0) c.types.in[2] = ot_type_vector(OT_I64, s.B);
  if (s.sinks) c.types.in[3] = ot_type_vector(OT_F64, FIRST_SINK + s.H + 1);
  return c;
}

// Documents of 13, 26, 39, ... tokens, shifted from sequence to sequence.
static void fill_documents(const ot_tensor *doc_start, shape s) {
  for (int64_t b = 0; b < s.B; b++) {
    int64_t start = 0;
    int64_t length = 13 + b;
    for (int64_t t = 0; t < s.T; t++) {
      if (t == start + length) {
        start = t;
        length += 13;
      }
      ot_case_set(doc_start, b * s.T + t, (double)start);
    }
  }
}

static void create(ot_case *c, shape s, int first) {
  ot_case_create(c);
  if (s.documents) fill_documents(&c->in[first + 1], s);
  for (int64_t b = 0; s.dropout > 0 && b < s.B; b++) {
    ot_case_set(&c->in[first + 2], b, 1000 - 7 * (double)b);
  }
}

static bool sees(const ot_case *c, shape s, int64_t b, int64_t i, int64_t j) {
  const double start = s.documents ? ot_case_get(&c->in[1], b * s.T + i) : 0;
  return j <= i && (double)j >= start && (s.window == 0 || j > i - s.window);
}

// Dropout factor of p for query `at` = {sequence, head, query} and key j.
static double keep_factor(const ot_case *c, shape s, const int64_t *at, int64_t j) {
  if (s.dropout == 0) return 1;
  const int64_t b = at[0], h = at[1] + c->attributes.first_head, i = at[2];
  const uint64_t low = ((uint64_t)h << 24 | (uint64_t)i) << 32 | (uint64_t)(j / 4);
  const ot_rng_block block = ot_rng_philox(c->attributes.seed, c->attributes.rng_stream, low,
                                           (uint64_t)ot_case_get(&c->in[2], b));
  return block.word[j % 4] < s.dropout * 4294967296.0 ? 0 : 1 / (1 - s.dropout);
}

static double part(const ot_case *c, shape s, int64_t row, int64_t head, int64_t d) {
  return ot_case_get(&c->in[0], (row * (s.H + 2 * s.G) + head) * s.D + d);
}

typedef struct expected {
  double *o, *lse, largest;
} expected;

static double capped(shape s, double score) {
  return s.soft_cap > 0 ? s.soft_cap * tanh(score / s.soft_cap) : score;
}

static void expect_query(const ot_case *c, shape s, const int64_t *at, expected *e) {
  const int64_t b = at[0], h = at[1], i = at[2];
  const int64_t row = b * s.T + i;
  const int64_t g = h / (s.H / s.G);
  double *const score = calloc((size_t)s.T, sizeof *score);
  double sum = s.sinks ? exp(ot_case_get(&c->in[3], FIRST_SINK + h)) : 0;
  for (int64_t j = 0; j <= i; j++) {
    if (!sees(c, s, b, i, j)) continue;
    for (int64_t d = 0; d < s.D; d++) {
      score[j] += 0.5 * part(c, s, row, h, d) * part(c, s, b * s.T + j, s.H + g, d);
    }
    score[j] = capped(s, score[j]);
    sum += exp(score[j]);
    e->largest = fmax(e->largest, score[j]);
  }
  e->lse[row * s.H + h] = log(sum);
  for (int64_t j = 0; j <= i; j++) {
    if (!sees(c, s, b, i, j)) continue;
    const double p = exp(score[j]) / sum * keep_factor(c, s, at, j);
    for (int64_t d = 0; d < s.D; d++) {
      e->o[(row * s.H + h) * s.D + d] += p * part(c, s, b * s.T + j, s.H + s.G + g, d);
    }
  }
  free(score);
}

static void output_is_the_definition_in_every_precision(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    const shape s = shapes[k];
    ot_case c = attention_case(s);
    create(&c, s, 0);
    ot_case_run(&c);
    expected e = {.o = calloc((size_t)(s.B * s.T * s.H * s.D), sizeof(double)),
                  .lse = calloc((size_t)(s.B * s.T * s.H), sizeof(double))};
    for (int64_t n = 0; n < s.B * s.H * s.T; n++) {
      const int64_t at[] = {n / s.T / s.H, n / s.T % s.H, n % s.T};
      expect_query(&c, s, at, &e);
    }
    ot_case_expect(&c.out[0], e.o, 1e-13, "o");
    ot_case_expect(&c.out[1], e.lse, 1e-13, "lse");
    ot_case_expect(&c.out[2], &e.largest, 1e-14, "max_logit");
    free(e.o);
    free(e.lse);
    ot_case_check_precisions(&c, 2e-6, 8e-3);
    ot_case_destroy(&c);
  }
}

static void gradients_are_those_of_the_output(void **state) {
  (void)state;
  const shape small[] = {
      {1, 3, 1, 1, 2, 0, false, 0, 0, false},    {2, 9, 3, 1, 3, 0, false, 0, 0, false},
      {1, 67, 2, 1, 2, 0, true, 0, 0, false},    {1, 70, 2, 2, 1, 5, false, 0, 0, false},
      {1, 20, 2, 2, 3, 0, true, 0.25, 0, false}, {1, 67, 2, 1, 3, 9, true, 0, 0.5, false},
      {1, 67, 4, 2, 3, 9, true, 0, 0, true},     {2, 5, 2, 1, 2, 0, false, 0.25, 0.5, true},
  };
  for (int k = 0; k < (int)(sizeof small / sizeof small[0]); k++) {
    ot_case c = attention_case(small[k]);
    create(&c, small[k], 0);
    ot_case_run(&c);
    ot_case_check_gradients(&c, 1e-4, 1e-6);
    ot_case_destroy(&c);
  }
}

// ---- the gradient against the formula ----

static ot_case gradient_case(const ot_case *forward, shape s) {
  ot_case c = {
      .kind = OT_OP_ATTENTION_GRAD,
      .attributes = forward->attributes,
      .statistic_inputs = 1u << 5,
      .types = {.in = {forward->types.out[0], forward->types.in[0], forward->types.in[1],
                       forward->types.in[2], forward->types.out[0], forward->types.out[1]}}};
  create(&c, s, 1);
  for (int64_t i = 0; i < ot_type_elements(&forward->types.in[0]); i++) {
    ot_case_set(&c.in[1], i, ot_case_get(&forward->in[0], i));
  }
  for (int output = 0; output < 2; output++) {
    for (int64_t i = 0; i < ot_type_elements(&forward->types.out[output]); i++) {
      ot_case_set(&c.in[4 + output], i, ot_case_get(&forward->out[output], i));
    }
  }
  return c;
}

// Adds the contribution of query i of head h to dqkv.
static void add_query_gradient(const ot_case *f, const ot_case *g, shape s, const int64_t *at,
                               double *dqkv) {
  const int64_t b = at[0], h = at[1], i = at[2];
  const int64_t row = b * s.T + i, kv = h / (s.H / s.G), width = (s.H + 2 * s.G) * s.D;
  const double lse = ot_case_get(&f->out[1], row * s.H + h);
  double delta = 0;
  for (int64_t d = 0; d < s.D; d++) {
    const int64_t k = (row * s.H + h) * s.D + d;
    delta += ot_case_get(&g->in[0], k) * ot_case_get(&f->out[0], k);
  }
  for (int64_t j = 0; j <= i; j++) {
    if (!sees(f, s, b, i, j)) continue;
    const int64_t key = b * s.T + j;
    double score = 0, dp = 0;
    for (int64_t d = 0; d < s.D; d++) {
      score += 0.5 * part(f, s, row, h, d) * part(f, s, key, s.H + kv, d);
      dp += ot_case_get(&g->in[0], (row * s.H + h) * s.D + d) * part(f, s, key, s.H + s.G + kv, d);
    }
    const double keep = keep_factor(f, s, at, j);
    const double p = exp(capped(s, score) - lse);
    const double slope = s.soft_cap > 0 ? pow(1 / cosh(score / s.soft_cap), 2) : 1;
    const double ds = p * (keep * dp - delta) * slope;
    for (int64_t d = 0; d < s.D; d++) {
      dqkv[row * width + h * s.D + d] += 0.5 * ds * part(f, s, key, s.H + kv, d);
      dqkv[key * width + (s.H + kv) * s.D + d] += 0.5 * ds * part(f, s, row, h, d);
      dqkv[key * width + (s.H + s.G + kv) * s.D + d] +=
          p * keep * ot_case_get(&g->in[0], (row * s.H + h) * s.D + d);
    }
  }
}

static void gradient_is_the_formula_in_every_precision(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    const shape s = shapes[k];
    ot_case f = attention_case(s);
    create(&f, s, 0);
    ot_case_run(&f);
    ot_case g = gradient_case(&f, s);
    ot_case_run(&g);
    double *const dqkv = calloc((size_t)ot_type_elements(&f.types.in[0]), sizeof *dqkv);
    for (int64_t n = 0; n < s.B * s.H * s.T; n++) {
      const int64_t at[] = {n / s.T / s.H, n / s.T % s.H, n % s.T};
      add_query_gradient(&f, &g, s, at, dqkv);
    }
    ot_case_expect(&g.out[0], dqkv, 1e-13, "dqkv");
    free(dqkv);
    ot_case_check_precisions(&g, 3e-6, 3e-2);
    ot_case_destroy(&f);
    ot_case_destroy(&g);
  }
}

static void the_largest_logit_persists_across_calls(void **state) {
  (void)state;
  const shape s = {2, 7, 3, 1, 5, 0, false, 0, 0, false};
  ot_case c = attention_case(s);
  create(&c, s, 0);
  ot_case_set(&c.out[2], 0, 1e6);
  ot_case_run(&c);
  assert_true(ot_case_get(&c.out[2], 0) == 1e6);
  ot_case_set(&c.out[2], 0, -1e6);
  ot_case_run(&c);
  assert_true(ot_case_get(&c.out[2], 0) > -1e6 && ot_case_get(&c.out[2], 0) < 1e6);
  ot_case_destroy(&c);
}

static void large_logits_do_not_overflow(void **state) {
  (void)state;
  const shape s = {1, 3, 1, 1, 1, 0, false, 0, 0, false};
  ot_case c = attention_case(s);
  create(&c, s, 0);
  const double qkv[] = {1, -40000, 7, 1, 40000, 8, 1, 40000 - 2, 9};
  for (int i = 0; i < 9; i++) ot_case_set(&c.in[0], i, qkv[i]);
  ot_case_run(&c);
  const double w = 1 / (1 + exp(-1.0));
  const double o[] = {7, 8, w * 8 + (1 - w) * 9};
  const double lse[] = {-20000, 20000, 20000 + log(1 + exp(-1.0))};
  ot_case_expect(&c.out[0], o, 1e-15, "o");
  ot_case_expect(&c.out[1], lse, 1e-15, "lse");
  ot_case_destroy(&c);
}

static void a_row_does_not_depend_on_later_rows(void **state) {
  (void)state;
  const shape s = {1, 100, 2, 1, 8, 0, false, 0, 0, false};
  ot_case c = attention_case(s);
  create(&c, s, 0);
  ot_case_run(&c);
  ot_case changed;
  ot_case_clone(&c, OT_F64, OT_F64, &changed);
  const int64_t width = (s.H + 2 * s.G) * s.D;
  for (int64_t i = 70 * width; i < 100 * width; i++) ot_case_set(&changed.in[0], i, 1e30);
  ot_case_run(&changed);
  assert_memory_equal(c.out[0].data, changed.out[0].data,
                      (size_t)(70 * s.H * s.D) * sizeof(double));
  ot_case_destroy(&changed);
  ot_case_destroy(&c);
}

static void cost_counts_visible_keys(void **state) {
  (void)state;
  shape s = {3, 10, 4, 2, 8, 0, false, 0, 0, false};
  ot_case c = attention_case(s);
  assert_int_equal(ot_op_infer(c.kind, &c.attributes, &c.types), OT_OK);
  const double whole = ot_op_cost(c.kind, &c.attributes, &c.types).matrix_flops;
  assert_true(whole == 3 * 4 * 55 * (4 * 8));
  c.attributes.window = 3;
  assert_true(ot_op_cost(c.kind, &c.attributes, &c.types).matrix_flops == 3 * 4 * 27 * (4 * 8));
  c.attributes.window = 50;
  assert_true(ot_op_cost(c.kind, &c.attributes, &c.types).matrix_flops == whole);
  const double others = ot_op_cost(c.kind, &c.attributes, &c.types).other_flops;
  c.attributes.soft_cap = 50;
  assert_true(ot_op_cost(c.kind, &c.attributes, &c.types).matrix_flops == whole);
  assert_true(ot_op_cost(c.kind, &c.attributes, &c.types).other_flops > 2 * others);
}

// Hidden pairs of one head in the tile of queries from `q` and keys from `k`, counted one by one;
// none if nothing in it is visible.
static int64_t hidden_in_tile(const shape *s, int64_t q, int64_t k) {
  int64_t seen = 0, held = 0;
  for (int64_t i = q; i < q + OT_ATTENTION_QUERIES && i < s->T; i++) {
    for (int64_t j = k; j < k + OT_ATTENTION_KEYS && j < s->T; j++) {
      held++;
      seen += j <= i && (s->window == 0 || j > i - s->window);
    }
  }
  return seen > 0 ? held - seen : 0;
}

static int64_t hidden_pairs(const shape *s) {
  int64_t hidden = 0;
  for (int64_t q = 0; q < s->T; q += OT_ATTENTION_QUERIES) {
    for (int64_t k = 0; k < s->T; k += OT_ATTENTION_KEYS) hidden += hidden_in_tile(s, q, k);
  }
  return hidden;
}

static void cost_includes_hidden_pairs_in_tiles(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 37, 64, 65, 100, 128, 129, 191, 256, 300, 700, 1000, 1024};
  const int64_t windows[] = {0, 1, 2, 16, 64, 100, 128, 200, 256, 999};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
      const shape s = {2, lengths[i], 4, 2, 8, windows[k], false, 0, 0, false};
      ot_case c = attention_case(s);
      assert_int_equal(ot_op_infer(c.kind, &c.attributes, &c.types), OT_OK);
      const double padded = ot_op_cost(c.kind, &c.attributes, &c.types).padded_flops;
      const double counted = 2 * 4 * (4 * 8) * (double)hidden_pairs(&s);
      if (padded == counted) continue;
      fail_msg("T %ld window %ld: %g, counted %g", (long)s.T, (long)s.window, padded, counted);
    }
  }
}

static void rejects_heads_that_do_not_share_evenly(void **state) {
  (void)state;
  const shape s = {1, 4, 5, 2, 8, 0, false, 0, 0, false};
  ot_case c = attention_case(s);
  assert_int_equal(ot_op_infer(c.kind, &c.attributes, &c.types), OT_BUG);
  assert_string_equal(ot_fail_message(), "attention: 2 kv heads do not divide 5 heads");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(output_is_the_definition_in_every_precision),
      cmocka_unit_test(gradients_are_those_of_the_output),
      cmocka_unit_test(gradient_is_the_formula_in_every_precision),
      cmocka_unit_test(the_largest_logit_persists_across_calls),
      cmocka_unit_test(large_logits_do_not_overflow),
      cmocka_unit_test(a_row_does_not_depend_on_later_rows),
      cmocka_unit_test(cost_counts_visible_keys),
      cmocka_unit_test(cost_includes_hidden_pairs_in_tiles),
      cmocka_unit_test(rejects_heads_that_do_not_share_evenly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
