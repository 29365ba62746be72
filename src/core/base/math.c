// SPDX-License-Identifier: Apache-2.0
// Elementary functions from Taylor series after range reduction; every coefficient is a plain
// fraction, none is fitted. Reductions subtract multiples of ln 2 or pi/2 that are split into parts
// with exact products (Cody and Waite 1980). log2 and pow keep the logarithm as an unevaluated sum
// of two doubles (Dekker 1971), since pow multiplies its error by y.
#include "base/math.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/math_lanes.h"

static const double ln2 = 0x1.62e42fefa39efp-1;
static const double infinity = (double)__builtin_inff();

// ---- decomposing and composing doubles ----

// 2^n for -1022 <= n <= 1023.
static double power_of_two(int64_t n) {
  const uint64_t bits = (uint64_t)(n + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// x * 2^n rounded once, for x in [0.5, 2].
static double scale(double x, int64_t n) {
  if (n > 1000) return x * power_of_two(1000) * power_of_two(n - 1000);
  if (n < -1000) return x * power_of_two(n + 1000) * power_of_two(-1000);
  return x * power_of_two(n);
}

static int64_t nearest_integer(double x) { return (int64_t)(x < 0 ? x - 0.5 : x + 0.5); }

// ---- products of sums of two doubles ----

static pair pair_of_product(double a, double b) {
  const double splitter = 134217729.0;  // 2^27 + 1
  const double a_high = a * splitter - (a * splitter - a);
  const double b_high = b * splitter - (b * splitter - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  const double high = a * b;
  return (pair){high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

static pair pair_add(pair a, pair b) {
  const pair sum = pair_of_sum(a.high, b.high);
  return pair_of_sum(sum.high, sum.low + a.low + b.low);
}

static pair pair_multiply(pair a, pair b) {
  const pair product = pair_of_product(a.high, b.high);
  return pair_of_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

// ---- exponentials ----

// e^(t + t_low) for |t| <= 0.35 and |t_low| < 1e-12.
static double exp_reduced(double t, double t_low) {
  static const double c[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                             1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                             1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  const double rest = t * t * polynomial(c, 12, t);
  return 1 + (t + (rest + t_low * (1 + (t + rest))));
}

// 2^(x + x_low).
static double exp2_of_pair(double x, double x_low) {
  if (x != x) return x;
  if (x >= 1025) return infinity;
  if (x <= -1080) return 0;
  const int64_t n = nearest_integer(x);
  return scale(exp_reduced((x - (double)n) * ln2, x_low * ln2), n);
}

double ot_exp(double x) {
  if (x != x) return x;
  if (x >= 710) return infinity;
  if (x <= -750) return 0;
  const int64_t n = nearest_integer(x / ln2);
  const pair t = pair_of_sum(x - (double)n * ln2_high, -(double)n * ln2_low);
  return scale(exp_reduced(t.high, t.low), n);
}

// ---- logarithms ----

static double log_outside(double x) {
  return x == 0 ? -infinity : x < 0 ? (double)__builtin_nanf("") : x;
}

static int is_positive_finite(double x) { return x > 0 && x < infinity; }

double ot_log(double x) {
  if (!is_positive_finite(x)) return log_outside(x);
  return log_positive(x);
}

// log2(x) for finite x > 0, with a relative error below 1e-19.
static pair log2_pair(double x) {
  static const double c[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                             1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  static const pair third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
  static const pair two_over_ln2 = {0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55};
  int k;
  const double m = split(x, &k);
  const double f = m - 1;
  const pair divisor = pair_of_sum(m, 1);
  const double quotient = f / divisor.high;
  const pair back = pair_of_product(quotient, divisor.high);
  const pair s = {quotient, ((f - back.high) - back.low - quotient * divisor.low) / divisor.high};
  const pair z = pair_multiply(s, s);
  const double tail = z.high * polynomial(c, 11, z.high);
  const pair cubic = pair_multiply(z, pair_add(third, (pair){tail, 0}));
  const pair half_log = pair_add(s, pair_multiply(s, cubic));
  return pair_add((pair){(double)k, 0}, pair_multiply(half_log, two_over_ln2));
}

double ot_log2(double x) {
  if (!is_positive_finite(x)) return log_outside(x);
  return log2_pair(x).high;
}

double ot_pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (!is_positive_finite(x)) return exp2_of_pair(y * log_outside(x), 0);
  const pair log2 = log2_pair(x);
  const double rough = y * log2.high;
  if (!(rough > -1100 && rough < 1100)) return exp2_of_pair(rough, 0);
  const pair product = pair_of_product(y, log2.high);
  return exp2_of_pair(product.high, product.low + y * log2.low);
}

// ---- circular functions ----

static int is_small(double x) { return x > -0x1p30 && x < 0x1p30; }

double ot_sin(double x) { return is_small(x) ? circular(x, 0) : (double)__builtin_nanf(""); }

double ot_cos(double x) { return is_small(x) ? circular(x, 1) : (double)__builtin_nanf(""); }

double ot_sqrt(double x) { return __builtin_sqrt(x); }
