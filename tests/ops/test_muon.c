// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Muon: PyTorch's values over two steps for wide and tall matrices, singular values of
// the update, storage types, statistics.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "fixtures/torch_values.h"
#include "support/op_case.h"

typedef struct muon_types {
  ot_dtype compute, gradient, parameter;
  bool master;
} muon_types;

static ot_case muon_case_of(int64_t rows, int64_t columns, muon_types t, ot_dtype moment) {
  ot_case c = {
      .kind = OT_OP_MUON,
      .attributes = {.threads = 2,
                     .compute = t.compute,
                     .beta1 = 0.95,
                     .weight_decay = 0.1,
                     .learning_rate_factor = 2},
      .types = {
          .in = {ot_type_matrix(t.gradient, rows, columns),
                 ot_type_vector(OT_F64, OT_STEP_SCALARS)},
          .out = {ot_type_matrix(t.parameter, rows, columns), ot_type_matrix(moment, rows, columns),
                  t.master ? ot_type_matrix(t.compute, rows, columns) : (ot_tensor_type){0},
                  ot_type_vector(OT_F64, 2)}}};
  ot_case_create(&c);
  ot_case_pattern(&c.out[0], 1);
  if (t.master) ot_case_pattern(&c.out[2], 1);
  ot_case_set(&c.in[1], OT_SCALAR_LEARNING_RATE, 0.01);
  ot_case_set(&c.in[1], OT_SCALAR_CLIP_FACTOR, 0.25);
  return c;
}

static ot_case muon_case(int64_t rows, int64_t columns, muon_types t) {
  return muon_case_of(rows, columns, t, t.compute);
}

// Step `step` counted from 0: pattern 10 + step, times four, which the clip factor cancels.
static void muon_step(ot_case *c, int step) {
  ot_case_pattern(&c->in[0], 10 + step);
  for (int64_t i = 0; i < ot_type_elements(&c->in[0].type); i++) {
    ot_case_set(&c->in[0], i, 4 * ot_case_get(&c->in[0], i));
  }
  ot_case_run(c);
}

static void expect_torch(muon_types t, double tolerance) {
  ot_case c = muon_case(5, 9, t);
  for (int step = 0; step < 2; step++) muon_step(&c, step);
  ot_case_expect(&c.out[t.master ? 2 : 0], torch_muon_wide_p, tolerance, "wide weights");
  ot_case_destroy(&c);
  c = muon_case(9, 4, t);
  for (int step = 0; step < 2; step++) muon_step(&c, step);
  ot_case_expect(&c.out[t.master ? 2 : 0], torch_muon_tall_p, tolerance, "tall weights");
  ot_case_destroy(&c);
}

// PyTorch divides by |u|, we by |u| + 1e-7 as the authors do.
static void muon_agrees_with_torch(void **state) {
  (void)state;
  expect_torch((muon_types){OT_F64, OT_F64, OT_F64, false}, 1e-8);
  expect_torch((muon_types){OT_F32, OT_F32, OT_F32, false}, 2e-6);
  expect_torch((muon_types){OT_F32, OT_BF16, OT_BF16, true}, 2e-6);
}

// A step with the momentum in bf16 is one in float32 from the same numbers, whose momentum is
// rounded after it.
static void a_momentum_in_bf16_is_rounded_each_step(void **state) {
  (void)state;
  const muon_types types = {OT_F32, OT_F32, OT_F32, false};
  ot_case narrow = muon_case_of(9, 7, types, OT_BF16), wide = muon_case(9, 7, types);
  for (int step = 0; step < 4; step++) {
    muon_step(&narrow, step);
    muon_step(&wide, step);
    int moved = 0;
    for (int64_t i = 0; i < 9 * 7; i++) {
      const float m = (float)ot_case_get(&wide.out[1], i);
      const double rounded = (double)ot_bf16_to_float(ot_bf16_from_float(m));
      assert_true(ot_case_get(&narrow.out[1], i) == rounded);
      assert_true(ot_case_get(&narrow.out[0], i) == ot_case_get(&wide.out[0], i));
      moved += rounded != (double)m;
      ot_case_set(&wide.out[1], i, rounded);
    }
    assert_true(step == 0 || moved > 30);
  }
  ot_case_destroy(&narrow);
  ot_case_destroy(&wide);
}

enum { SIDE = 12, LENGTH = 20 };

// One Jacobi rotation that zeroes gram[p][q].
static void rotate(double gram[SIDE][SIDE], int p, int q) {
  const double theta = (gram[q][q] - gram[p][p]) / (2 * gram[p][q]);
  const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
  const double c = 1 / sqrt(t * t + 1);
  const double s = t * c;
  for (int k = 0; k < SIDE; k++) {
    const double kp = gram[k][p];
    const double kq = gram[k][q];
    gram[k][p] = c * kp - s * kq;
    gram[k][q] = s * kp + c * kq;
  }
  for (int k = 0; k < SIDE; k++) {
    const double pk = gram[p][k];
    const double qk = gram[q][k];
    gram[p][k] = c * pk - s * qk;
    gram[q][k] = s * pk + c * qk;
  }
}

// The diagonal ends as the squared singular values of x [SIDE, LENGTH].
static void diagonalize(const double *x, double gram[SIDE][SIDE]) {
  for (int i = 0; i < SIDE * SIDE; i++) {
    double sum = 0;
    for (int k = 0; k < LENGTH; k++) sum += x[i / SIDE * LENGTH + k] * x[i % SIDE * LENGTH + k];
    gram[i / SIDE][i % SIDE] = sum;
  }
  for (int sweep = 0; sweep < 20 * SIDE * SIDE; sweep++) {
    const int p = sweep / SIDE % SIDE;
    const int q = sweep % SIDE;
    if (p < q && fabs(gram[p][q]) > 1e-14) rotate(gram, p, q);
  }
}

// From zero weights, without decay, one step gives -rate * 0.2 sqrt(20) X.
static void singular_values_of_the_update_are_near_one(void **state) {
  (void)state;
  ot_case c = muon_case(SIDE, LENGTH, (muon_types){OT_F32, OT_F32, OT_F32, false});
  double x[SIDE * LENGTH];
  double gram[SIDE][SIDE];
  ot_case_fill(&c.in[0], 1, 1, 0);
  ot_case_fill(&c.out[0], 1, 0, 0);
  ot_case_run(&c);
  for (int64_t i = 0; i < SIDE * LENGTH; i++) {
    x[i] = ot_case_get(&c.out[0], i) / (-0.02 * 0.2 * sqrt(LENGTH));
  }
  diagonalize(x, gram);
  for (int i = 0; i < SIDE; i++) {
    const double value = sqrt(gram[i][i]);
    if (value < 0.66 || value > 1.15) fail_msg("singular value %g, expected 0.68 to 1.13", value);
  }
  ot_case_destroy(&c);
}

static void parameter_is_the_rounded_master(void **state) {
  (void)state;
  ot_case c = muon_case(33, 70, (muon_types){OT_F32, OT_F32, OT_BF16, true});
  muon_step(&c, 0);
  for (int64_t i = 0; i < 33 * 70; i++) {
    const float master = (float)ot_case_get(&c.out[2], i);
    assert_true(ot_case_get(&c.out[0], i) == (double)ot_bf16_to_float(ot_bf16_from_float(master)));
  }
  ot_case_destroy(&c);
}

static void statistics_are_the_squared_step_and_weight(void **state) {
  (void)state;
  ot_case c = muon_case(130, 150, (muon_types){OT_F64, OT_F64, OT_F64, false});
  const int64_t n = ot_type_elements(&c.out[0].type);
  double *const before = calloc((size_t)n, sizeof *before);
  double expected[2] = {0};
  for (int64_t i = 0; i < n; i++) before[i] = ot_case_get(&c.out[0], i);
  muon_step(&c, 0);
  for (int64_t i = 0; i < n; i++) {
    expected[0] += pow(ot_case_get(&c.out[0], i) - before[i], 2);
    expected[1] += pow(ot_case_get(&c.out[0], i), 2);
  }
  assert_true(fabs(ot_case_get(&c.out[3], 0) / expected[0] - 1) < 1e-11);
  assert_true(fabs(ot_case_get(&c.out[3], 1) / expected[1] - 1) < 1e-12);
  free(before);
  ot_case_destroy(&c);
}

static void a_run_repeated_gives_the_same_bits(void **state) {
  (void)state;
  ot_case first = muon_case(130, 70, (muon_types){OT_F32, OT_F32, OT_F32, false});
  ot_case second = muon_case(130, 70, (muon_types){OT_F32, OT_F32, OT_F32, false});
  muon_step(&first, 0);
  muon_step(&second, 0);
  for (int i = 0; i < 2; i++) {
    assert_memory_equal(first.out[i].data, second.out[i].data,
                        (size_t)ot_type_bytes(&first.out[i].type));
  }
  ot_case_destroy(&first);
  ot_case_destroy(&second);
}

static void a_zero_gradient_moves_nothing_but_decays(void **state) {
  (void)state;
  ot_case c = muon_case(6, 4, (muon_types){OT_F32, OT_F32, OT_F32, false});
  double expected[24];
  for (int64_t i = 0; i < 24; i++) expected[i] = ot_case_get(&c.out[0], i) * (1 - 0.02 * 0.1);
  ot_case_fill(&c.in[0], 1, 0, 0);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], expected, 1e-7, "weights");
  ot_case_destroy(&c);
}

static void a_step_without_a_finite_norm_changes_nothing(void **state) {
  (void)state;
  ot_case c = muon_case(6, 4, (muon_types){OT_F32, OT_F32, OT_BF16, true});
  muon_step(&c, 0);
  double before[3][24];
  for (int i = 0; i < 3 * 24; i++) before[i / 24][i % 24] = ot_case_get(&c.out[i / 24], i % 24);
  ot_case_set(&c.in[1], OT_SCALAR_CLIP_FACTOR, NAN);
  muon_step(&c, 1);
  for (int i = 0; i < 3; i++) ot_case_expect(&c.out[i], before[i], 0, "p, m or master");
  assert_true(ot_case_get(&c.out[3], 0) == 0 && ot_case_get(&c.out[3], 1) == 0);
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(muon_agrees_with_torch),
      cmocka_unit_test(a_momentum_in_bf16_is_rounded_each_step),
      cmocka_unit_test(singular_values_of_the_update_are_near_one),
      cmocka_unit_test(parameter_is_the_rounded_master),
      cmocka_unit_test(statistics_are_the_squared_step_and_weight),
      cmocka_unit_test(a_run_repeated_gives_the_same_bits),
      cmocka_unit_test(a_zero_gradient_moves_nothing_but_decays),
      cmocka_unit_test(a_step_without_a_finite_norm_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
