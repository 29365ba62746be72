// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Draws of a teacher: the expected weight of every id is its probability, whether all
// ids have a place or not, and the gradient that a student gets of them is that of the whole
// distribution; of the most probable ids it is not, and differs as theory says. A GPU draws what
// the CPU does.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/head_draw.h"
#include "support/op_case.h"
#include "support/op_device.h"

enum { V = 32, C = 4, ROWS = 64 };

static bool is_full(void) {
  const char *const tests = getenv("OT_TESTS");
  return tests && strcmp(tests, "full") == 0;
}

// Every row has the same x, so the same distribution, and its own key.
static ot_case draw_case(int64_t K, int64_t N) {
  ot_case c = {
      .kind = OT_OP_HEAD_DRAW,
      .attributes = {.threads = 2, .compute = OT_F64, .chunk_rows = 40, .draw_ids = K, .draws = N},
      .types = {.in = {ot_type_matrix(OT_F64, ROWS, C), ot_type_matrix(OT_F64, V, C),
                       ot_type_vector(OT_I32, ROWS), ot_type_vector(OT_I64, ROWS)}}};
  ot_case_create(&c);
  for (int64_t i = 0; i < ROWS * C; i++) ot_case_set(&c.in[0], i, 0.25 * (double)(i % C) + 0.5);
  for (int64_t r = 0; r < ROWS; r++) ot_case_set(&c.in[2], r, (double)(r % V));
  return c;
}

static void set_keys(const ot_case *c, int64_t trial) {
  for (int64_t r = 0; r < ROWS; r++) {
    const ot_rng_block random = ot_rng_philox(7, 11, (uint64_t)r, (uint64_t)trial);
    ((int64_t *)c->in[3].data)[r] = (int64_t)((uint64_t)random.word[0] << 32 | random.word[1]);
  }
}

static void probabilities_of(const ot_case *c, double p[V]) {
  double sum = 0;
  for (int64_t v = 0; v < V; v++) {
    double logit = 0;
    for (int64_t i = 0; i < C; i++) {
      logit += ot_case_get(&c->in[0], i) * ot_case_get(&c->in[1], v * C + i);
    }
    p[v] = exp(logit);
    sum += p[v];
  }
  for (int64_t v = 0; v < V; v++) p[v] /= sum;
}

// The largest |z| of the mean weight of an id over many draws; one never drawn counts as rare.
static double largest_z(ot_case *c, int64_t trials, const double p[V]) {
  double sum[V] = {0}, squares[V] = {0};
  const int64_t K = c->attributes.draw_ids;
  for (int64_t trial = 0; trial < trials; trial++) {
    set_keys(c, trial);
    ot_case_run(c);
    for (int64_t r = 0; r < ROWS; r++) {
      double weight[V] = {0};
      for (int64_t k = 0; k < K; k++) {
        weight[((const int32_t *)c->out[0].data)[r * K + k]] +=
            (double)((const float *)c->out[1].data)[r * K + k];
      }
      for (int64_t v = 0; v < V; v++) {
        sum[v] += weight[v];
        squares[v] += weight[v] * weight[v];
      }
    }
  }
  double largest = 0;
  const double n = (double)(trials * ROWS);
  for (int64_t v = 0; v < V; v++) {
    const double mean = sum[v] / n, variance = sum[v] > 0 ? squares[v] / n - mean * mean : p[v];
    const double z = fabs(mean - p[v]) / (sqrt(variance / n) + 1e-12);
    largest = fmax(largest, z);
  }
  return largest;
}

// A place for every id; too few places; one draw, one place. OT_TESTS=full: a million draws each.
static void weights_are_unbiased(void **state) {
  (void)state;
  static const int cases[][2] = {{20, 20}, {4, 20}, {1, 1}, {127, 127}, {2, 50}};
  for (int i = 0; i < 5; i++) {
    const int64_t N = cases[i][1], draws = is_full() ? 1000000 : 100000;
    ot_case c = draw_case(cases[i][0], N);
    double p[V];
    probabilities_of(&c, p);
    const double z = largest_z(&c, (draws + N * ROWS - 1) / (N * ROWS), p);
    if (!(z < 4)) fail_msg("%d ids of %d draws: z = %.2f", cases[i][0], cases[i][1], z);
    ot_case_destroy(&c);
  }
}

// Weights are draws over their number, ids ascend, unused places are zero, and the score is exact.
static void rows_are_draws_with_their_score(void **state) {
  (void)state;
  ot_case c = draw_case(60, 50);
  double p[V], entropy = 0;
  ot_case_set(&c.in[2], 3, -1);
  set_keys(&c, 0);
  ot_case_run(&c);
  probabilities_of(&c, p);
  for (int64_t v = 0; v < V; v++) entropy -= p[v] * log(p[v]);
  for (int64_t r = 0; r < ROWS; r++) {
    const int32_t *const ids = (const int32_t *)c.out[0].data + r * 60;
    const float *const weights = (const float *)c.out[1].data + r * 60;
    double sum = 0;
    for (int k = 0; k < 60; k++) {
      const double count = (double)weights[k] * 50;
      assert_true(fabs(count - round(count)) < 1e-5);
      assert_true(k == 0 || weights[k] == 0 || ids[k] > ids[k - 1]);
      assert_true(weights[k] > 0 || ids[k] == 0);
      sum += (double)weights[k];
    }
    const double expected = r == 3 ? 0 : log(p[r % V]);
    assert_true(fabs(sum - (r == 3 ? 0 : 1)) < 1e-6);
    assert_true(fabs(ot_case_get(&c.out[2], r) - expected) < 1e-12);
    assert_true(fabs(ot_case_get(&c.out[3], r) - (r == 3 ? 0 : entropy)) < 1e-12);
  }
  ot_case_destroy(&c);
}

// The variance is at most that of as many free draws.
static void equal_shares_have_less_variance(void **state) {
  (void)state;
  enum { N = 20, TRIALS = 200 };
  ot_case c = draw_case(N, N);
  double p[V], squares[V] = {0};
  probabilities_of(&c, p);
  for (int64_t trial = 0; trial < TRIALS; trial++) {
    set_keys(&c, trial);
    ot_case_run(&c);
    for (int64_t r = 0; r < ROWS; r++) {
      double weight[V] = {0};
      for (int k = 0; k < N; k++) {
        weight[((const int32_t *)c.out[0].data)[r * N + k]] +=
            (double)((const float *)c.out[1].data)[r * N + k];
      }
      for (int64_t v = 0; v < V; v++) squares[v] += (weight[v] - p[v]) * (weight[v] - p[v]);
    }
  }
  double found = 0, free_draws = 0;
  for (int64_t v = 0; v < V; v++) {
    found += squares[v] / (TRIALS * ROWS);
    free_draws += p[v] * (1 - p[v]) / N;
  }
  if (!(found < free_draws)) fail_msg("variance %.3g, free draws have %.3g", found, free_draws);
  ot_case_destroy(&c);
}

static void the_most_probable_have_their_probabilities(void **state) {
  (void)state;
  ot_case c = draw_case(5, 0);
  double p[V];
  set_keys(&c, 0);
  ot_case_run(&c);
  probabilities_of(&c, p);
  for (int k = 0; k < 5; k++) {
    const int32_t id = ((const int32_t *)c.out[0].data)[k];
    int above = 0;
    for (int64_t v = 0; v < V; v++) above += p[v] > p[id];
    assert_int_equal(above, k);
    assert_true(fabs((double)((const float *)c.out[1].data)[k] - p[id]) < 1e-7);
  }
  ot_case_destroy(&c);
}

// ---- the gradient of a student ----

// Of its logits for one row, W q - sum of weights: its mean over the rows of many trials, and the
// mean's standard error.
typedef struct mean_gradient {
  double mean[V], error[V];
} mean_gradient;

static mean_gradient gradient_of(ot_case *c, int64_t trials, const double q[V]) {
  mean_gradient g = {{0}, {0}};
  double squares[V] = {0};
  const int64_t K = c->attributes.draw_ids;
  for (int64_t i = 0; i < trials * ROWS; i++) {
    const int64_t r = i % ROWS;
    double row[V], total = 0;
    if (r == 0) set_keys(c, i / ROWS);
    if (r == 0) ot_case_run(c);
    for (int64_t k = 0; k < K; k++) total += (double)((const float *)c->out[1].data)[r * K + k];
    for (int64_t v = 0; v < V; v++) row[v] = total * q[v];
    for (int64_t k = 0; k < K; k++) {
      row[((const int32_t *)c->out[0].data)[r * K + k]] -=
          (double)((const float *)c->out[1].data)[r * K + k];
    }
    for (int64_t v = 0; v < V; v++) {
      g.mean[v] += row[v];
      squares[v] += row[v] * row[v];
    }
  }
  const double n = (double)(trials * ROWS);
  for (int64_t v = 0; v < V; v++) {
    g.mean[v] /= n;
    g.error[v] = sqrt(fmax(squares[v] / n - g.mean[v] * g.mean[v], 0) / n) + 1e-9;
  }
  return g;
}

// 4,096 draws of 50 agree with q - p in every element; the five most probable ids do not, and the
// slope of their gradient against q, over the ids left out, is the mass that is kept.
static void gradients_of_draws_are_unbiased_and_those_of_top_k_are_not(void **state) {
  (void)state;
  ot_case sampled = draw_case(50, 50), top = draw_case(5, 0);
  double p[V], q[V], sum = 0, kept = 0, qq = 0, qg = 0;
  int refuted = 0;
  probabilities_of(&sampled, p);
  for (int64_t v = 0; v < V; v++) sum += q[v] = 1 + (double)(v * 7 % 5);
  for (int64_t v = 0; v < V; v++) q[v] /= sum;
  const mean_gradient of_draws = gradient_of(&sampled, 4096 / ROWS, q);
  const mean_gradient of_top = gradient_of(&top, 1, q);
  for (int k = 0; k < 5; k++) kept += p[((const int32_t *)top.out[0].data)[k]];
  for (int64_t v = 0; v < V; v++) {
    const double t = (of_draws.mean[v] - (q[v] - p[v])) / of_draws.error[v];
    if (!(fabs(t) < 6)) fail_msg("draws, id %d: t = %.2f", (int)v, t);
    refuted += fabs(of_top.mean[v] - (q[v] - p[v])) > 6 * of_draws.error[v];
    bool is_kept = false;
    for (int k = 0; k < 5; k++) is_kept = is_kept || ((const int32_t *)top.out[0].data)[k] == v;
    qq += is_kept ? 0 : q[v] * q[v];
    qg += is_kept ? 0 : q[v] * of_top.mean[v];
  }
  assert_true(refuted > V / 2);
  if (!(fabs(qg / qq - kept) < 1e-6)) fail_msg("slope %.9g, kept mass %.9g", qg / qq, kept);
  assert_true(kept > 0.2 && kept < 0.9);
  ot_case_destroy(&sampled);
  ot_case_destroy(&top);
}

// ---- the limit of ids ----

static void a_limit_keeps_the_most_frequent_and_the_sum(void **state) {
  (void)state;
  int chosen[3] = {0};
  for (uint64_t key = 0; key < 6000; key++) {
    ot_drawn drawn[] = {{2, 5}, {3, 1}, {5, 9}, {8, 2}, {9, 3}};
    assert_int_equal(ot_draws_limit(drawn, 5, 3, key), 3);
    assert_true(drawn[0].id == 2 && drawn[0].count == 5);
    int rest = 0;
    for (int i = 0; i < 3; i++) {
      if (drawn[i].id == 5) assert_int_equal(drawn[i].count, 9);
      if (drawn[i].id == 5 || drawn[i].id == 2) continue;
      assert_int_equal(drawn[i].count, 6);
      rest = drawn[i].id;
    }
    chosen[rest == 3 ? 0 : rest == 8 ? 1 : 2]++;
  }
  // One, two and three of six.
  for (int i = 0; i < 3; i++) {
    const double share = (i + 1) / 6.0, n = 6000;
    assert_true(fabs(chosen[i] / n - share) < 4 * sqrt(share * (1 - share) / n));
  }
}

// ---- the CPU and a GPU ----

enum { WIDE = 1300, FEW = 6 };  // more ids than threads of a block

// Rows of different laws, one masked, one with ids of weight 0.
static ot_case wide_case(int64_t K, int64_t N, ot_dtype type, double soft_cap) {
  ot_case c = {.kind = OT_OP_HEAD_DRAW,
               .attributes = {.threads = 1,
                              .compute = type,
                              .chunk_rows = 4,
                              .draw_ids = K,
                              .draws = N,
                              .soft_cap = soft_cap},
               .types = {.in = {ot_type_matrix(type, FEW, C), ot_type_matrix(type, WIDE, C),
                                ot_type_vector(OT_I32, FEW), ot_type_vector(OT_I64, FEW)}}};
  ot_case_create(&c);
  ot_case_pattern(&c.in[0], 1);
  ot_case_pattern(&c.in[1], 2);
  for (int i = 0; i < C; i++) ot_case_set(&c.in[0], 2 * C + i, i == 0 ? 400 : 0);
  for (int r = 0; r < FEW; r++) {
    ot_case_set(&c.in[2], r, r == 4 ? -1 : r * 211);
    ((int64_t *)c.in[3].data)[r] = (int64_t)ot_rng_key(9, (uint64_t)r + 1);
  }
  return c;
}

// Whether rounding decides between two ids of a row: a place of a draw is at the border after the
// first of them.
static bool rounding_decides(const ot_case *c, int64_t row, int32_t a, int32_t b) {
  static const double rounding = 1e-5;  // of the sum of float32 weights
  const double cap = c->attributes.soft_cap;
  double logits[WIDE], largest = -INFINITY, sum = 0, before = 0;
  for (int v = 0; v < WIDE; v++) {
    logits[v] = 0;
    for (int i = 0; i < C; i++)
      logits[v] += ot_case_get(&c->in[0], row * C + i) * ot_case_get(&c->in[1], v * C + i);
    if (cap > 0) logits[v] = cap * tanh(logits[v] / cap);
    largest = fmax(largest, logits[v]);
  }
  for (int v = 0; v < WIDE; v++) {
    const double weight = exp(logits[v] - largest);
    sum += weight;
    if (v <= a && v <= b) before += weight;
  }
  const uint64_t key = (uint64_t)((const int64_t *)c->in[3].data)[row];
  const int64_t draws = c->attributes.draws;
  for (int64_t j = 0; j < draws; j++) {
    if (fabs(ot_draw_place(key, j, draws) - before / sum) < rounding) return true;
  }
  return false;
}

static void assert_same_ids(const ot_case *gpu, const ot_case *cpu) {
  const int64_t K = gpu->attributes.draw_ids;
  const int32_t *const found = gpu->out[0].data, *const wanted = cpu->out[0].data;
  for (int64_t e = 0; e < FEW * K; e++) {
    if (found[e] == wanted[e]) continue;
    if (cpu->types.in[0].dtype == OT_F64 || !rounding_decides(cpu, e / K, found[e], wanted[e]))
      fail_msg("row %d, place %d: %d and %d", (int)(e / K), (int)(e % K), found[e], wanted[e]);
  }
}

// Draws, with a place for each or few, and the most probable ids, of which many are equal.
static void a_gpu_draws_as_the_cpu_does(void **state) {
  (void)state;
  static const int cases[][2] = {{127, 127}, {50, 50}, {4, 50}, {1, 1}, {24, 0}, {256, 0}};
  for (int i = 0; i < 12; i++) {
    const int64_t K = cases[i / 2][0];
    const ot_dtype type = i % 2 == 0 ? OT_F64 : OT_F32;
    ot_case c = wide_case(K, cases[i / 2][1], type, i % 4 < 2 ? 0 : 1.5), cpu;
    ot_case_clone(&c, type, type, &cpu);
    cpu.attributes.backend = OT_BACKEND_CPU;
    memcpy(cpu.in[3].data, c.in[3].data, FEW * 8);  // no double holds a key
    ot_case_run(&c);
    ot_case_run(&cpu);
    assert_same_ids(&c, &cpu);
    for (int k = 1; k < 4; k++) {
      const int64_t n = ot_type_elements(&c.out[k].type);
      for (int64_t e = 0; e < n; e++) {
        const double found = ot_case_get(&c.out[k], e), wanted = ot_case_get(&cpu.out[k], e);
        const double most = (k == 1 || type == OT_F32 ? 1e-6 : 1e-12) * (1 + fabs(wanted));
        if (!(fabs(found - wanted) <= most))
          fail_msg("case %d, output %d: %.17g and %.17g", i, k, found, wanted);
      }
    }
    ot_case_destroy(&c);
    ot_case_destroy(&cpu);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_unbiased),
      cmocka_unit_test(rows_are_draws_with_their_score),
      cmocka_unit_test(equal_shares_have_less_variance),
      cmocka_unit_test(the_most_probable_have_their_probabilities),
      cmocka_unit_test(gradients_of_draws_are_unbiased_and_those_of_top_k_are_not),
      cmocka_unit_test(a_limit_keeps_the_most_frequent_and_the_sum),
  };
  // An emulated GPU is too slow for many draws.
  const struct CMUnitTest gpu[] = {
      cmocka_unit_test(a_gpu_draws_as_the_cpu_does),
      cmocka_unit_test(rows_are_draws_with_their_score),
      cmocka_unit_test(the_most_probable_have_their_probabilities),
  };
  const bool on_gpu = op_device_backend() == OT_BACKEND_CUDA;
  return on_gpu ? cmocka_run_group_tests(gpu, NULL, NULL)
                : cmocka_run_group_tests(tests, NULL, NULL);
}
