// SPDX-License-Identifier: Apache-2.0
// The tail is half a regularised incomplete beta function, by its continued fraction (Abramowitz
// and Stegun 26.5.8, 26.7.1); quantiles by bisection of it.
#include "ledger/student.h"

#include <math.h>

#include "base/status.h"

// Continued fraction of the incomplete beta function, by the modified Lentz method.
static double fraction(double a, double b, double x) {
  const double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (fabs(d) < tiny) d = tiny;
  d = 1 / d;
  double value = d;
  for (int m = 1; m < 1000; m++) {
    for (int odd = 0; odd < 2; odd++) {
      const double even_term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
      const double odd_term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
      const double term = odd ? odd_term : even_term;
      d = 1 + term * d;
      c = 1 + term / c;
      d = 1 / (fabs(d) < tiny ? tiny : d);
      if (fabs(c) < tiny) c = tiny;
      value *= d * c;
    }
    if (fabs(d * c - 1) < 1e-16) break;
  }
  return value;
}

static double log_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

// I_x(a, b).
static double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * fraction(a, b, x) / a;
  return 1 - front * fraction(b, a, 1 - x) / b;
}

double ot_student_tail(double t, double freedom) {
  if (isinf(t)) return t > 0 ? 0 : 1;
  const double half = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
  return t >= 0 ? half : 1 - half;
}

double ot_student_quantile(double p, double freedom) {
  if (p == 0.5) return 0;
  const double tail = p > 0.5 ? 1 - p : p;
  double low = 0, high = 1;
  while (ot_student_tail(high, freedom) > tail) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-15 * high; i++) {
    const double middle = (low + high) / 2;
    if (ot_student_tail(middle, freedom) > tail)
      low = middle;
    else
      high = middle;
  }
  return (p > 0.5 ? 1 : -1) * (low + high) / 2;
}

// ---- the jackknife ----

ot_measured ot_measured_of(double value, double se, int seeds, double coverage) {
  if (isnan(value)) return (ot_measured){NAN, NAN, NAN, NAN, NAN};
  if (seeds < 2) return (ot_measured){value, INFINITY, -INFINITY, INFINITY, 0.5};
  const double half = se * ot_student_quantile(0.5 + coverage / 2, seeds - 1);
  ot_measured e = {value, se, value - half, value + half, 0.5};
  if (se > 0) e.p = ot_student_tail(value / se, seeds - 1);
  if (se == 0 && value != 0) e.p = value > 0 ? 0 : 1;
  return e;
}

// The estimate from leave-one-out values [seeds].
static ot_measured estimate(const ot_jackknife *j, double value, const double *left) {
  const int n = j->seeds;
  double mean = 0, squares = 0;
  for (int k = 0; k < n; k++) mean += left[k] / n;
  for (int k = 0; k < n; k++) squares += (left[k] - mean) * (left[k] - mean);
  return ot_measured_of(value, sqrt((n - 1.0) / n * squares), n, j->coverage);
}

void ot_jackknife_estimate(const ot_jackknife *j, ot_measured *out) {
  double all[OT_JACKKNIFE_VALUES], left[OT_JACKKNIFE_VALUES][OT_LEDGER_SEEDS];
  OT_ASSERT(j->seeds <= OT_LEDGER_SEEDS && j->count <= OT_JACKKNIFE_VALUES);
  j->statistics(j->context, -1, all);
  for (int k = 0; k < j->seeds; k++) {
    double values[OT_JACKKNIFE_VALUES] = {0};
    if (j->seeds > 1) j->statistics(j->context, k, values);
    for (int i = 0; i < j->count; i++) left[i][k] = values[i];
  }
  for (int i = 0; i < j->count; i++) out[i] = estimate(j, all[i], left[i]);
}

bool ot_measured_within(const ot_measured *e, int seeds, double coverage, double margin) {
  if (seeds < 2) return false;
  const double half = e->se * ot_student_quantile(0.5 + coverage / 2, seeds - 1);
  return e->value - half > -margin && e->value + half < margin;
}
