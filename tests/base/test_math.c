// SPDX-License-Identifier: Apache-2.0
// run: alone. Elementary functions against libm in long double, at random points of their whole
// range and at points where argument reduction loses accuracy.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/math.h"
#include "base/rng.h"

enum { RANDOM_POINTS = 200000 };

// Half a unit in the last place is at most 1.1e-16.
static const double relative_bound = 1.7e-16;
static const double circular_bound = 1e-16;

static double random_between(uint64_t counter, double low, double high) {
  return low + (high - low) * ot_rng_uniform(7, 1, counter);
}

static double relative_error(double ours, long double exact) {
  return (double)fabsl(((long double)ours - exact) / exact);
}

typedef double (*unary)(double);
typedef long double (*exact_unary)(long double);

// The largest relative error over random points, and the point.
static void check_relative(unary ours, exact_unary exact, double low, double high) {
  double worst = 0;
  double worst_at = 0;
  for (uint64_t i = 0; i < RANDOM_POINTS; i++) {
    const double x = random_between(i, low, high);
    const long double y = exact(x);
    if (y == 0) continue;
    const double error = relative_error(ours(x), y);
    if (error > worst) {
      worst = error;
      worst_at = x;
    }
  }
  if (!(worst < relative_bound)) fail_msg("error %.3g at %a", worst, worst_at);
}

static double exp2_as_power(double x) { return ot_pow(2, x); }

static void exponentials_are_accurate(void **state) {
  (void)state;
  check_relative(exp2_as_power, exp2l, -1021, 1023.9);
  check_relative(exp2_as_power, exp2l, -1, 1);
  check_relative(ot_exp, expl, -708, 709.7);
  check_relative(ot_exp, expl, -1, 1);
}

static void exponentials_reach_subnormals_and_infinity(void **state) {
  (void)state;
  for (int n = -1074; n <= 1023; n++) assert_true(exp2_as_power(n) == ldexp(1, n));
  assert_true(exp2_as_power(-1080) == 0);
  assert_true(exp2_as_power(1024) == INFINITY);
  assert_true(ot_exp(-INFINITY) == 0);
  assert_true(ot_exp(710) == INFINITY);
  assert_true(ot_exp(-740) > 0);
  assert_true(isnan(ot_exp(NAN)));
  assert_true(ot_exp(0) == 1);
}

static void check_logarithms(double x) {
  if (x == 1) return;
  if (!(relative_error(ot_log2(x), log2l(x)) < relative_bound)) fail_msg("log2(%a)", x);
  if (!(relative_error(ot_log(x), logl(x)) < relative_bound)) fail_msg("log(%a)", x);
}

static void logarithms_are_accurate(void **state) {
  (void)state;
  for (uint64_t i = 0; i < RANDOM_POINTS; i++) {
    check_logarithms(exp2(random_between(i, -1074, 1023.9)));
    check_logarithms(random_between(i, 0.7, 1.45));
    check_logarithms(1 + ldexp(random_between(i, -1, 1), -(int)(i % 52)));
  }
  for (int n = -1074; n <= 1023; n++) assert_true(ot_log2(ldexp(1, n)) == n);
  assert_true(ot_log(0) == -INFINITY);
  assert_true(ot_log(INFINITY) == INFINITY);
  assert_true(isnan(ot_log(-1)));
}

static void powers_are_accurate(void **state) {
  (void)state;
  double worst = 0;
  for (uint64_t i = 0; i < RANDOM_POINTS; i++) {
    const double x = exp2(random_between(2 * i, -30, 30));
    const double y = random_between(2 * i + 1, -33, 33);
    const double error = relative_error(ot_pow(x, y), powl(x, y));
    worst = error > worst ? error : worst;
  }
  if (!(worst < relative_bound)) fail_msg("error %.3g", worst);
  assert_true(ot_pow(10, 3) == 1000);
  assert_true(ot_pow(2, -1074) == 0x1p-1074);
  assert_true(ot_pow(5, 0) == 1);
  assert_true(ot_pow(1e200, 2) == INFINITY);
  assert_true(ot_pow(1e-200, 2) == 0);
}

static void check_circular(double x) {
  const double sin_error = (double)fabsl((long double)ot_sin(x) - sinl(x));
  const double cos_error = (double)fabsl((long double)ot_cos(x) - cosl(x));
  if (!(sin_error < circular_bound)) fail_msg("sin(%a): %.3g", x, sin_error);
  if (!(cos_error < circular_bound)) fail_msg("cos(%a): %.3g", x, cos_error);
}

static void circular_functions_are_accurate(void **state) {
  (void)state;
  for (uint64_t i = 0; i < RANDOM_POINTS; i++) {
    check_circular(random_between(i, -8, 8));
    check_circular(random_between(i, -0x1p30, 0x1p30));
    check_circular((double)(i * 997) * 1.57079632679489661923);
  }
  assert_true(ot_sin(0) == 0);
  assert_true(ot_cos(0) == 1);
}

static void square_root_is_exact(void **state) {
  (void)state;
  for (uint64_t i = 0; i < RANDOM_POINTS; i++) {
    const double x = exp2(random_between(i, -1074, 1023));
    assert_true(ot_sqrt(x) == sqrt(x));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exponentials_are_accurate),
      cmocka_unit_test(exponentials_reach_subnormals_and_infinity),
      cmocka_unit_test(logarithms_are_accurate),
      cmocka_unit_test(powers_are_accurate),
      cmocka_unit_test(circular_functions_are_accurate),
      cmocka_unit_test(square_root_is_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
