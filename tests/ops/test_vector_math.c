// SPDX-License-Identifier: Apache-2.0
// run: serial. Every function against libm in long double, over all magnitudes and signs.
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "kernels/vector_math.h"

typedef long double (*reference)(long double x);

enum { NUM_PATTERNS = 400000, NUM_NEAR = 400000 };

// Distance in ulps of `want` in a format of `digits` binary digits with smallest number 2^smallest.
// A value beyond the format is infinite.
static double error_ulp(long double got, long double want, int digits, int smallest) {
  const long double largest = digits == 24 ? (long double)FLT_MAX : (long double)DBL_MAX;
  if (fabsl(want) > largest) return fabsl(got) > largest && signbit(got) == signbit(want) ? 0 : 1e9;
  if (isnan(got)) return 1e9;
  int exponent;
  frexpl(want, &exponent);
  const int unit = want == 0 || exponent - digits < smallest ? smallest : exponent - digits;
  return (double)(fabsl(got - want) / ldexpl(1, unit));
}

static double worst_f32(float (*function)(float), reference exact) {
  double worst = 0;
  for (int64_t i = 0; i < NUM_PATTERNS + NUM_NEAR; i++) {
    const float x = i < NUM_PATTERNS ? ot_from_bits_f32((int32_t)(uint32_t)(i * 10737))
                                     : (float)(i - NUM_PATTERNS - NUM_NEAR / 2) *
                                           (i % 7 == 0 ? 0x1.f3p-12f : 0x1.a5p-15f);
    if (isnan(x)) continue;
    const long double want = exact((long double)x);
    const float got = function(x);
    if (isnan(want)) {
      assert_true(isnan(got));
      continue;
    }
    worst = fmax(worst, error_ulp((long double)got, want, 24, -149));
  }
  return worst;
}

static double worst_f64(double (*function)(double), reference exact) {
  double worst = 0;
  for (int64_t i = 0; i < NUM_PATTERNS + NUM_NEAR; i++) {
    const double x = i < NUM_PATTERNS ? ot_from_bits_f64((int64_t)((uint64_t)i * 46116860184273ULL))
                                      : (double)(i - NUM_PATTERNS - NUM_NEAR / 2) *
                                            (i % 7 == 0 ? 0x1.f3p-9 : 0x1.a5p-15);
    if (isnan(x)) continue;
    const long double want = exact((long double)x);
    const double got = function(x);
    if (isnan(want)) {
      assert_true(isnan(got));
      continue;
    }
    worst = fmax(worst, error_ulp((long double)got, want, 53, -1074));
  }
  return worst;
}

static void within(const char *name, double worst, double bound) {
  if (worst > bound) print_error("%s: largest error %.3f ulp, bound %.3f\n", name, worst, bound);
  assert_true(worst <= bound);
}

static long double sigmoid(long double x) { return 1 / (1 + expl(-x)); }

static void float_functions_stay_within_their_stated_error(void **state) {
  (void)state;
  within("exp", worst_f32(ot_exp_f32, expl), 1.05);
  within("log", worst_f32(ot_log_f32, logl), 0.85);
  within("tanh", worst_f32(ot_tanh_f32, tanhl), 2.5);
  within("erf", worst_f32(ot_erf_f32, erfl), 1.2);
}

static void double_functions_stay_within_their_stated_error(void **state) {
  (void)state;
  within("exp", worst_f64(ot_exp_f64, expl), 1.05);
  within("log", worst_f64(ot_log_f64, logl), 0.85);
  within("tanh", worst_f64(ot_tanh_f64, tanhl), 2.5);
  within("erf", worst_f64(ot_erf_f64, erfl), 1.6);
}

static void sigmoid_is_accurate_where_exp_does_not_overflow(void **state) {
  (void)state;
  for (int i = -8600; i < 8600; i++) {
    const double x = i * 0.01;
    const long double want = sigmoid((long double)(float)x);
    const long double wide = sigmoid((long double)x);
    assert_true(error_ulp((long double)ot_sigmoid_f32((float)x), want, 24, -149) <= 2.5);
    assert_true(error_ulp((long double)ot_sigmoid_f64(x), wide, 53, -1074) <= 2.5);
  }
  assert_true(ot_sigmoid_f32(-INFINITY) == 0 && ot_sigmoid_f32(INFINITY) == 1);
  assert_true(ot_sigmoid_f64(-INFINITY) == 0 && ot_sigmoid_f64(INFINITY) == 1);
}

static void exp_of_nonpositive_numbers_is_exp_or_zero(void **state) {
  (void)state;
  for (int i = 0; i < 200000; i++) {
    const float narrow = (float)i * -0x1.cp-10f;
    const float found = ot_exp_nonpositive_f32(narrow);
    const long double want = narrow < -87 ? 0 : expl((long double)narrow);
    assert_true(error_ulp((long double)found, want, 24, -149) <= 1.05);
    const double wide = i * -0x1.dp-8;
    const double found_wide = ot_exp_nonpositive_f64(wide);
    const long double want_wide = wide < -708 ? 0 : expl((long double)wide);
    assert_true(error_ulp((long double)found_wide, want_wide, 53, -1074) <= 1.05);
  }
  assert_true(ot_exp_nonpositive_f32(-INFINITY) == 0 && ot_exp_nonpositive_f64(-INFINITY) == 0);
  assert_true(isnan(ot_exp_nonpositive_f32(NAN)) && isnan(ot_exp_nonpositive_f64(NAN)));
}

static void special_values_are_as_documented(void **state) {
  (void)state;
  assert_true(ot_exp_f32(0) == 1 && ot_exp_f64(0) == 1);
  assert_true(ot_exp_f32(-INFINITY) == 0 && ot_exp_f64(-INFINITY) == 0);
  assert_true(isinf(ot_exp_f32(INFINITY)) && isinf(ot_exp_f64(INFINITY)));
  assert_true(ot_log_f32(0) == -INFINITY && ot_log_f64(0) == -INFINITY);
  assert_true(isnan(ot_log_f32(-1)) && isnan(ot_log_f64(-1)));
  assert_true(isnan(ot_log_f32(-INFINITY)) && isnan(ot_log_f64(-INFINITY)));
  assert_true(ot_log_f32(INFINITY) == INFINITY && ot_log_f64(INFINITY) == INFINITY);
  assert_true(ot_log_f32(1) == 0 && ot_log_f64(1) == 0);
  assert_true(ot_tanh_f32(INFINITY) == 1 && ot_tanh_f64(-INFINITY) == -1);
  assert_true(ot_erf_f32(-INFINITY) == -1 && ot_erf_f64(INFINITY) == 1);
  assert_true(signbit(ot_tanh_f32(-0.0f)) && signbit(ot_erf_f64(-0.0)));
  assert_true(isnan(ot_exp_f32(NAN)) && isnan(ot_exp_f64(NAN)));
  assert_true(isnan(ot_log_f32(NAN)) && isnan(ot_log_f64(NAN)));
  assert_true(isnan(ot_tanh_f32(NAN)) && isnan(ot_tanh_f64(NAN)));
  assert_true(isnan(ot_erf_f32(NAN)) && isnan(ot_erf_f64(NAN)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(float_functions_stay_within_their_stated_error),
      cmocka_unit_test(double_functions_stay_within_their_stated_error),
      cmocka_unit_test(sigmoid_is_accurate_where_exp_does_not_overflow),
      cmocka_unit_test(exp_of_nonpositive_numbers_is_exp_or_zero),
      cmocka_unit_test(special_values_are_as_documented),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
