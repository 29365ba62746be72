// SPDX-License-Identifier: Apache-2.0
// Parts of base/math.c without branches and calls, so that loops over many numbers are vectorised
// and have its bits: + - * / and conversions of small integers, each rounded once, in one order.
// Files that include it must not contract products and sums (-ffp-contract=off).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Kernels for GPUs include this file as well.
#if defined(__CUDACC__)
#define OT_LANE_CODE static inline __host__ __device__
#else
#define OT_LANE_CODE static inline
#endif

static const double ln2_high = 0x1.62e42fee00000p-1;  // 32 bits
static const double ln2_low = 0x1.a39ef35793c76p-33;

// c[0] + c[1] x + ... + c[n-1] x^(n-1).
OT_LANE_CODE double polynomial(const double *c, int n, double x) {
  double sum = c[n - 1];
  for (int i = n - 2; i >= 0; i--) sum = sum * x + c[i];
  return sum;
}

// ---- sums of two doubles ----

typedef struct pair {
  double high;
  double low;  // |low| <= half a unit in the last place of high
} pair;

OT_LANE_CODE pair pair_of_sum(double a, double b) {
  const double high = a + b;
  const double b_kept = high - a;
  return (pair){high, (a - (high - b_kept)) + (b - b_kept)};
}

// ---- the logarithm ----

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)), for finite x > 0.
OT_LANE_CODE double split(double x, int *k) {
  const bool tiny = x < 0x1p-1022;
  const double normal = tiny ? x * 0x1p54 : x;
  uint64_t bits;
  memcpy(&bits, &normal, sizeof bits);
  const int exponent = (int)(bits >> 52) - (tiny ? 1022 + 54 : 1022);
  bits = (bits & ((1ULL << 52) - 1)) | 1022ULL << 52;
  double m;
  memcpy(&m, &bits, sizeof m);
  const bool low = m < 0x1.6a09e667f3bcdp-1;  // the root of 1/2
  *k = low ? exponent - 1 : exponent;
  return low ? m * 2 : m;
}

// log(x) for finite x > 0.
OT_LANE_CODE double log_positive(double x) {
  // With s = f / (2 + f): log(1 + f) = log((1 + s) / (1 - s)) = 2 s + 2 s^3 / 3 + 2 s^5 / 5 + ...,
  // and 2 s = f - s f, whose leading term f is exact.
  static const double c[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                             2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  int k;
  const double f = split(x, &k) - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  const double half_square = 0.5 * f * f;
  const double rest = s * (half_square + z * polynomial(c, 10, z)) + (double)k * ln2_low;
  return (double)k * ln2_high - ((half_square - rest) - f);
}

// ---- circular functions ----

// x - n pi/2 for the nearest n, with |x| < 2^30; returns n mod 4.
OT_LANE_CODE int reduce_quadrant(double x, pair *r) {
  static const double part[] = {0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48,
                                0x1.8cc51701b839ap-72};  // the first three have 23 bits
  const double turns = x * 0x1.45f306dc9c883p-1;
  const int quadrant = (int)(turns < 0 ? turns - 0.5 : turns + 0.5);
  const double n = (double)quadrant;
  const double rest = (x - n * part[0]) - n * part[1];
  const pair sum = pair_of_sum(rest, -n * part[2]);
  *r = pair_of_sum(sum.high, sum.low - n * part[3]);
  return quadrant & 3;
}

OT_LANE_CODE double sin_reduced(pair r) {
  static const double c[] = {-1.0 / 6,
                             1.0 / 120,
                             -1.0 / 5040,
                             1.0 / 362880,
                             -1.0 / 39916800,
                             1.0 / 6227020800.0,
                             -1.0 / 1307674368000.0,
                             1.0 / 355687428096000.0};
  const double z = r.high * r.high;
  return r.high + (r.high * z * polynomial(c, 8, z) + r.low * (1 - 0.5 * z));
}

OT_LANE_CODE double cos_reduced(pair r) {
  static const double c[] = {1.0 / 24,
                             -1.0 / 720,
                             1.0 / 40320,
                             -1.0 / 3628800,
                             1.0 / 479001600,
                             -1.0 / 87178291200.0,
                             1.0 / 20922789888000.0,
                             -1.0 / 6402373705728000.0};
  const double z = r.high * r.high;
  const double leading = 1 - 0.5 * z;
  const double lost = (1 - leading) - 0.5 * z;
  return leading + (lost + (z * z * polynomial(c, 8, z) - r.high * r.low));
}

// sin(x + quarter_turns pi/2) for |x| < 2^30.
OT_LANE_CODE double circular(double x, int quarter_turns) {
  pair r;
  const int quadrant = (reduce_quadrant(x, &r) + quarter_turns) & 3;
  const double even = sin_reduced(r), odd = cos_reduced(r);
  const double value = quadrant & 1 ? odd : even;
  return quadrant & 2 ? -value : value;
}
