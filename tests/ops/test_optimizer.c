// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Gradient norm, clipping and AdamW: PyTorch's values over three steps, float32 and
// bf16 storage with and without master weights, statistics, and bits independent of threads.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures/torch_values.h"
#include "support/op_case.h"

static ot_case sum_squares_case(int64_t n) {
  ot_case c = {.kind = OT_OP_SUM_SQUARES,
               .attributes = {.threads = 2, .compute = OT_F64},
               .types = {.in = {ot_type_vector(OT_F64, n)}}};
  ot_case_create(&c);
  return c;
}

static void sums_squares_over_many_blocks(void **state) {
  (void)state;
  // On a GPU a thread has an element, a vector, and more vectors than it loads at once.
  static const int64_t sizes[] = {1, 1500, 70001, 4500003};
  for (int s = 0; s < 4; s++) {
    ot_case c = sum_squares_case(sizes[s]);
    long double sum = 0;
    for (int64_t i = 0; i < sizes[s]; i++) {
      const long double g = ot_case_get(&c.in[0], i);
      sum += g * g;
    }
    const double expected = (double)sum;
    ot_case_run(&c);
    ot_case_expect(&c.out[0], &expected, 1e-14, "s");
    // The inputs are exact in every storage type, and the sum is float64 in each.
    ot_case_check_precisions(&c, 1e-14, 1e-14);
    ot_case_destroy(&c);
  }
}

static void sums_of_squares_are_added_when_asked(void **state) {
  (void)state;
  ot_case c = sum_squares_case(40000);
  ot_case_run(&c);
  const double once = ot_case_get(&c.out[0], 0);
  c.attributes.accumulate = true;
  ot_case_run(&c);
  const double twice = 2 * once;
  ot_case_expect(&c.out[0], &twice, 0, "s");
  c.attributes.accumulate = false;
  ot_case_run(&c);
  ot_case_expect(&c.out[0], &once, 0, "s");
  ot_case_destroy(&c);
}

static void scale_multiplies_what_is_squared(void **state) {
  (void)state;
  ot_case c = sum_squares_case(40000);
  ot_case_run(&c);
  const double scaled = 0.3 * 0.3 * ot_case_get(&c.out[0], 0);
  c.attributes.scale = 0.3;
  ot_case_run(&c);
  ot_case_expect(&c.out[0], &scaled, 1e-14, "s");
  ot_case_check_precisions(&c, 1e-14, 1e-14);
  ot_case_destroy(&c);
}

static void the_norm_is_of_all_terms(void **state) {
  (void)state;
  enum { TERMS = 600 };
  const double norm = sqrt(TERMS * (TERMS + 1) / 2);
  ot_case c = {.kind = OT_OP_CLIP_FACTOR,
               .attributes = {.threads = 1, .compute = OT_F32},
               .types = {.in = {ot_type_vector(OT_F64, TERMS)}}};
  ot_case_create(&c);
  for (int i = 0; i < TERMS; i++) ot_case_set(&c.in[0], i, i + 1);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], &norm, 1e-15, "norm");
  ot_case_destroy(&c);
}

static void expect_clip(double clip, const double *expected_norm, const double *expected_factor) {
  ot_case c = {.kind = OT_OP_CLIP_FACTOR,
               .attributes = {.threads = 1, .compute = OT_F32, .clip = clip},
               .types = {.in = {ot_type_vector(OT_F64, 3)}}};
  ot_case_create(&c);
  for (int i = 0; i < 3; i++) ot_case_set(&c.in[0], i, (double[]){4, 9, 12}[i]);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], expected_norm, 1e-16, "norm");
  ot_case_expect(&c.out[1], expected_factor, 1e-16, "factor");
  ot_case_destroy(&c);
}

static void clips_only_what_is_longer(void **state) {
  (void)state;
  const double norm = 5;
  const double clipped = 2 / (5 + 1e-6);
  const double whole = 1;
  expect_clip(2, &norm, &clipped);
  expect_clip(6, &norm, &whole);
  expect_clip(0, &norm, &whole);
}

// ---- AdamW ----

typedef struct adamw_types {
  ot_dtype compute, gradient, parameter, moments;
  bool master;
} adamw_types;

static ot_case adamw_case(int64_t n, adamw_types t) {
  const ot_tensor_type absent = {0};
  ot_case c = {
      .kind = OT_OP_ADAMW,
      .attributes = {.threads = 2,
                     .compute = t.compute,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .weight_decay = 0.1,
                     .learning_rate_factor = 0.5},
      .types = {
          .in = {ot_type_vector(t.gradient, n), ot_type_vector(OT_F64, OT_STEP_SCALARS)},
          .out = {ot_type_vector(t.parameter, n), ot_type_vector(t.moments, n),
                  ot_type_vector(t.moments, n), t.master ? ot_type_vector(t.compute, n) : absent,
                  ot_type_vector(OT_F64, 2)}}};
  ot_case_create(&c);
  ot_case_pattern(&c.out[0], 1);
  if (t.master) ot_case_pattern(&c.out[3], 1);
  return c;
}

// Step `step` counted from 0: the gradient is pattern 10 + step times `scale`, with a clip factor
// that cancels the scale; the rate is 0.01 after the group's factor.
static void adamw_step(ot_case *c, int step, double scale) {
  ot_case_pattern(&c->in[0], 10 + step);
  for (int64_t i = 0; i < c->in[0].type.dim[0]; i++) {
    ot_case_set(&c->in[0], i, scale * ot_case_get(&c->in[0], i));
  }
  ot_case_set(&c->in[1], OT_SCALAR_LEARNING_RATE, 0.02);
  ot_case_set(&c->in[1], OT_SCALAR_CLIP_FACTOR, 1 / scale);
  ot_case_set(&c->in[1], OT_SCALAR_CORRECTION_1, 1 / (1 - pow(0.9, step + 1)));
  ot_case_set(&c->in[1], OT_SCALAR_CORRECTION_2, 1 / (1 - pow(0.95, step + 1)));
  ot_case_run(c);
}

static void expect_torch(adamw_types t, double tolerance) {
  ot_case c = adamw_case(30, t);
  for (int step = 0; step < 3; step++) adamw_step(&c, step, 4);
  ot_case_expect(&c.out[t.master ? 3 : 0], torch_adamw_p, tolerance, "weights");
  ot_case_expect(&c.out[1], torch_adamw_m, tolerance, "m");
  ot_case_expect(&c.out[2], torch_adamw_v, tolerance, "v");
  ot_case_destroy(&c);
}

static void adamw_agrees_with_torch(void **state) {
  (void)state;
  expect_torch((adamw_types){OT_F64, OT_F64, OT_F64, OT_F64, false}, 1e-15);
  expect_torch((adamw_types){OT_F32, OT_F32, OT_F32, OT_F32, false}, 2e-7);
  expect_torch((adamw_types){OT_F32, OT_BF16, OT_BF16, OT_F32, true}, 2e-7);
  expect_torch((adamw_types){OT_F64, OT_F32, OT_F32, OT_F64, true}, 1e-15);
}

// The formula in float64 with moments rounded to bf16 after each step, as they are stored. A step
// whose float32 sum rounds to the other neighbour moves a moment by one unit of bf16.
static void bf16_moments_are_rounded_each_step(void **state) {
  (void)state;
  enum { N = 3000, STEPS = 20 };
  ot_case c = adamw_case(N, (adamw_types){OT_F32, OT_F32, OT_BF16, OT_BF16, true});
  static double p[N], m[N], v[N];
  for (int i = 0; i < N; i++) p[i] = ot_case_get(&c.out[3], i);
  for (int step = 0; step < STEPS; step++) {
    const double c1 = 1 / (1 - pow(0.9, step + 1)), c2 = 1 / (1 - pow(0.95, step + 1));
    adamw_step(&c, step, 1);
    for (int i = 0; i < N; i++) {
      const double g = ot_case_get(&c.in[0], i);
      m[i] = 0.9 * m[i] + (1 - 0.9) * g;
      v[i] = 0.95 * v[i] + (1 - 0.95) * g * g;
      p[i] -= 0.01 * (c1 * m[i] / (sqrt(c2 * v[i]) + 1e-8) + 0.1 * p[i]);
      m[i] = (double)ot_bf16_to_float(ot_bf16_from_float((float)m[i]));
      v[i] = (double)ot_bf16_to_float(ot_bf16_from_float((float)v[i]));
      assert_true(fabs(ot_case_get(&c.out[1], i) - m[i]) <= 0x1p-7 * (fabs(m[i]) + fabs(g)));
      assert_true(fabs(ot_case_get(&c.out[2], i) - v[i]) <= 0x1p-7 * (v[i] + g * g));
      assert_true(fabs(ot_case_get(&c.out[3], i) - p[i]) <= 2e-4);
    }
  }
  int exact = 0;
  for (int i = 0; i < N; i++) {
    exact += ot_case_get(&c.out[1], i) == m[i] && ot_case_get(&c.out[2], i) == v[i];
  }
  assert_true(exact > N * 9 / 10);
  ot_case_destroy(&c);
}

static void parameter_is_the_rounded_master(void **state) {
  (void)state;
  ot_case c = adamw_case(1500, (adamw_types){OT_F32, OT_F32, OT_BF16, OT_F32, true});
  adamw_step(&c, 0, 1);
  for (int64_t i = 0; i < 1500; i++) {
    const float master = (float)ot_case_get(&c.out[3], i);
    assert_true(ot_case_get(&c.out[0], i) == (double)ot_bf16_to_float(ot_bf16_from_float(master)));
  }
  ot_case_destroy(&c);
}

static void parameter_without_master_is_rounded_each_step(void **state) {
  (void)state;
  ot_case c = adamw_case(30, (adamw_types){OT_F32, OT_F32, OT_BF16, OT_F32, false});
  double before[30];
  for (int64_t i = 0; i < 30; i++) before[i] = ot_case_get(&c.out[0], i);
  adamw_step(&c, 0, 1);
  for (int64_t i = 0; i < 30; i++) {
    const double gradient = ot_case_get(&c.in[0], i);
    // The first step of Adam has the length of the rate and the sign of the gradient.
    const double step = 0.01 * gradient / (fabs(gradient) + 1e-8) + 0.01 * 0.1 * before[i];
    const float exact = (float)(before[i] - step);
    const double spacing = fabs((double)exact) * 0x1p-8 + 1e-9;
    assert_true(fabs(ot_case_get(&c.out[0], i) - (double)exact) <= spacing);
  }
  ot_case_destroy(&c);
}

static void statistics_are_the_squared_step_and_weight(void **state) {
  (void)state;
  const int64_t n = 20000;
  ot_case c = adamw_case(n, (adamw_types){OT_F64, OT_F64, OT_F64, OT_F64, false});
  double *const before = calloc((size_t)n, sizeof *before);
  double expected[2] = {0};
  for (int64_t i = 0; i < n; i++) before[i] = ot_case_get(&c.out[0], i);
  adamw_step(&c, 0, 1);
  for (int64_t i = 0; i < n; i++) {
    expected[0] += pow(ot_case_get(&c.out[0], i) - before[i], 2);
    expected[1] += pow(ot_case_get(&c.out[0], i), 2);
  }
  assert_true(fabs(ot_case_get(&c.out[4], 0) / expected[0] - 1) < 1e-11);
  assert_true(fabs(ot_case_get(&c.out[4], 1) / expected[1] - 1) < 1e-12);
  free(before);
  ot_case_destroy(&c);
}

static void adamw_bits_do_not_depend_on_threads(void **state) {
  (void)state;
  static const int threads[] = {2, 3, 8};
  const adamw_types types = {OT_F32, OT_F32, OT_BF16, OT_F32, true};
  ot_case one = adamw_case(50001, types);
  one.attributes.threads = 1;
  adamw_step(&one, 0, 1);
  for (int t = 0; t < 3; t++) {
    ot_case many = adamw_case(50001, types);
    many.attributes.threads = threads[t];
    adamw_step(&many, 0, 1);
    for (int i = 0; i < 5; i++) {
      const size_t bytes = (size_t)ot_type_bytes(&one.out[i].type);
      assert_memory_equal(many.out[i].data, one.out[i].data, bytes);
    }
    ot_case_destroy(&many);
  }
  ot_case_destroy(&one);
}

static void runs_without_statistics(void **state) {
  (void)state;
  ot_case c = adamw_case(30, (adamw_types){OT_F32, OT_F32, OT_F32, OT_F32, false});
  const ot_tensor stats = c.out[4];
  c.out[4] = (ot_tensor){0};
  adamw_step(&c, 0, 1);
  c.out[4] = stats;
  ot_case_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_squares_over_many_blocks),
      cmocka_unit_test(sums_of_squares_are_added_when_asked),
      cmocka_unit_test(scale_multiplies_what_is_squared),
      cmocka_unit_test(the_norm_is_of_all_terms),
      cmocka_unit_test(clips_only_what_is_longer),
      cmocka_unit_test(adamw_agrees_with_torch),
      cmocka_unit_test(bf16_moments_are_rounded_each_step),
      cmocka_unit_test(parameter_is_the_rounded_master),
      cmocka_unit_test(parameter_without_master_is_rounded_each_step),
      cmocka_unit_test(statistics_are_the_squared_step_and_weight),
      cmocka_unit_test(adamw_bits_do_not_depend_on_threads),
      cmocka_unit_test(runs_without_statistics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
