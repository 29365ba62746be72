// SPDX-License-Identifier: Apache-2.0
// Points of a curve are relative to budget 1, within each seed: what is common to a seed cancels.
#include "ledger/multiplier.h"

#include <math.h>
#include <string.h>

static const double parabola_limit = 0.2;  // in ln m
static const double coverage = 0.95;

enum { POINTS = OT_LEDGER_SCALES + OT_LEDGER_BUDGETS };

// Loss against ln C, both relative to the scale's budget 1; x increasing.
typedef struct curve {
  int count;
  double x[POINTS], y[POINTS];
} curve;

// Mean over seeds of b - a where both are; NaN where no seed has both.
static double mean_difference(const double *a, const double *b, int seeds, int left_out) {
  double sum = 0;
  int count = 0;
  for (int k = 0; k < seeds; k++) {
    if (k == left_out || isnan(a[k]) || isnan(b[k])) continue;
    sum += b[k] - a[k];
    count++;
  }
  return count > 0 ? sum / count : NAN;
}

static void add_point(curve *c, double x, double y) {
  if (isnan(y)) return;
  int at = c->count++;
  for (; at > 0 && c->x[at - 1] > x; at--) {
    c->x[at] = c->x[at - 1];
    c->y[at] = c->y[at - 1];
  }
  c->x[at] = x;
  c->y[at] = y;
}

static curve curve_of(const ot_baseline *b, int scale, int left_out) {
  curve c = {.count = 1};
  const double *const here = b->loss[scale];
  for (int i = 0; b->along_ladder && i < b->scales; i++) {
    if (i == scale) continue;
    add_point(&c, b->ln_compute[i] - b->ln_compute[scale],
              mean_difference(here, b->loss[i], b->seeds, left_out));
  }
  for (int i = 0; !b->along_ladder && i < b->budgets; i++)
    add_point(&c, log(b->factor[i]),
              mean_difference(here, b->budget_loss[scale][i], b->seeds, left_out));
  return c;
}

// The least-squares parabola c + b x + a x^2; with two points, the line.
typedef struct parabola {
  double b, a;
} parabola;

static parabola fit(const curve *c) {
  double s[5] = {0}, t[3] = {0};
  if (c->count < 2) return (parabola){NAN, NAN};
  if (c->count == 2) return (parabola){(c->y[1] - c->y[0]) / (c->x[1] - c->x[0]), 0};
  for (int i = 0; i < c->count; i++) {
    double power = 1;
    for (int k = 0; k < 5; k++, power *= c->x[i]) {
      s[k] += power;
      if (k < 3) t[k] += power * c->y[i];
    }
  }
  // Normal equations of 1, x, x^2 by Cramer's rule.
  const double whole = s[0] * (s[2] * s[4] - s[3] * s[3]) - s[1] * (s[1] * s[4] - s[3] * s[2]) +
                       s[2] * (s[1] * s[3] - s[2] * s[2]);
  const double b = s[0] * (t[1] * s[4] - s[3] * t[2]) - t[0] * (s[1] * s[4] - s[3] * s[2]) +
                   s[2] * (s[1] * t[2] - t[1] * s[2]);
  const double a = s[0] * (s[2] * t[2] - t[1] * s[3]) - s[1] * (s[1] * t[2] - t[1] * s[2]) +
                   t[0] * (s[1] * s[3] - s[2] * s[2]);
  return (parabola){b / whole, a / whole};
}

double ot_baseline_slope(const ot_baseline *base, int scale, int left_out) {
  const curve c = curve_of(base, scale, left_out);
  return -fit(&c).b;
}

// ---- the inverse of the curve ----

// Fritsch and Carlson 1980: derivatives at the points of a falling curve that keep it monotone.
static void monotone_slopes(const curve *c, double *m) {
  const int n = c->count;
  double secant[POINTS] = {0};
  for (int i = 0; i + 1 < n; i++) secant[i] = (c->y[i + 1] - c->y[i]) / (c->x[i + 1] - c->x[i]);
  m[0] = secant[0];
  m[n - 1] = secant[n - 2];
  for (int i = 1; i + 1 < n; i++) m[i] = (secant[i - 1] + secant[i]) / 2;
  for (int i = 0; i + 1 < n; i++) {
    const double a = m[i] / secant[i], b = m[i + 1] / secant[i];
    const double length = sqrt(a * a + b * b);
    if (length <= 3) continue;
    m[i] *= 3 / length;
    m[i + 1] *= 3 / length;
  }
}

static double cubic(const curve *c, const double *m, int i, double x) {
  const double h = c->x[i + 1] - c->x[i], t = (x - c->x[i]) / h;
  return c->y[i] * (1 + 2 * t) * (1 - t) * (1 - t) + h * m[i] * t * (1 - t) * (1 - t) +
         c->y[i + 1] * t * t * (3 - 2 * t) + h * m[i + 1] * t * t * (t - 1);
}

// The x at which the curve has the value y; NaN if it does not fall everywhere.
static double invert(const curve *c, double y) {
  double m[POINTS];
  const int n = c->count;
  for (int i = 0; i + 1 < n; i++)
    if (c->y[i + 1] >= c->y[i]) return NAN;
  monotone_slopes(c, m);
  if (y >= c->y[0]) return c->x[0] + (y - c->y[0]) / m[0];
  if (y <= c->y[n - 1]) return c->x[n - 1] + (y - c->y[n - 1]) / m[n - 1];
  int i = 0;
  while (y < c->y[i + 1]) i++;
  double low = c->x[i], high = c->x[i + 1];
  for (int step = 0; step < 100; step++) {
    const double middle = (low + high) / 2;
    if (cubic(c, m, i, middle) > y)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}

double ot_baseline_loss_at(const ot_baseline *base, int scale, double x) {
  double m[POINTS];
  const curve c = curve_of(base, scale, -1);
  const parabola p = fit(&c);
  const int n = c.count;
  if (fabs(x) <= parabola_limit || n < 3) return p.b * x + p.a * x * x;
  monotone_slopes(&c, m);
  if (x <= c.x[0]) return c.y[0] + m[0] * (x - c.x[0]);
  if (x >= c.x[n - 1]) return c.y[n - 1] + m[n - 1] * (x - c.x[n - 1]);
  int i = 0;
  while (x > c.x[i + 1]) i++;
  return cubic(&c, m, i, x);
}

double ot_ln_multiplier(const ot_baseline *base, const ot_changed *changed, int scale,
                        int left_out) {
  const curve c = curve_of(base, scale, left_out);
  const double lower =
      mean_difference(changed->loss[scale], base->loss[scale], base->seeds, left_out);
  const parabola p = fit(&c);
  // b x + a x^2 = -lower, the root that the tangent has for a -> 0.
  const double root = sqrt(fmax(p.b * p.b - 4 * p.a * lower, 0));
  double gain = p.b < 0 ? 2 * lower / (root - p.b) : lower / -p.b;
  if (fabs(gain) > parabola_limit && c.count > 2) {
    const double inverted = invert(&c, -lower);
    if (!isnan(inverted)) gain = inverted;
  }
  return gain - (changed->ln_compute[scale] - base->ln_compute[scale]);
}

// ---- a change ----

typedef struct comparison {
  const ot_baseline *base;
  const ot_changed *changed;
  double ln_target;
} comparison;

// Order of the values: ln m and slope of each scale, then mean, trend, at target.
static void compare(const void *context, int left_out, double *values) {
  const comparison *const c = context;
  const int n = c->base->scales;
  double mean = 0, x_mean = 0, xx = 0, xy = 0;
  for (int s = 0; s < n; s++) {
    values[s] = ot_ln_multiplier(c->base, c->changed, s, left_out);
    values[n + s] = ot_baseline_slope(c->base, s, left_out);
    mean += values[s] / n;
    x_mean += c->base->ln_compute[s] / n;
  }
  for (int s = 0; s < n; s++) {
    const double x = c->base->ln_compute[s] - x_mean;
    xx += x * x;
    xy += x * values[s];
  }
  const double trend = xx > 0 ? xy / xx : NAN;
  values[2 * n] = mean;
  values[2 * n + 1] = trend;
  values[2 * n + 2] = mean + trend * (c->ln_target - x_mean);
}

// Correlation of both arms and standard deviation of their difference over seeds.
static void spread(const comparison *c, int scale, ot_multiplier *out) {
  const double *const a = c->base->loss[scale], *const b = c->changed->loss[scale];
  const int n = c->base->seeds;
  double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
  for (int k = 0; k < n; k++) {
    mean_a += a[k] / n;
    mean_b += b[k] / n;
  }
  for (int k = 0; k < n; k++) {
    aa += (a[k] - mean_a) * (a[k] - mean_a);
    bb += (b[k] - mean_b) * (b[k] - mean_b);
    ab += (a[k] - mean_a) * (b[k] - mean_b);
  }
  out->rho[scale] = ab / sqrt(aa * bb);
  out->pair_sd[scale] = n > 1 ? sqrt((aa + bb - 2 * ab) / (n - 1)) / out->slope[scale].value : NAN;
}

// The standard error of ln m at a scale that rounding alone gives.
static double rounding_error(const ot_baseline *base, int scale) {
  return base->rounding[scale] / ot_baseline_slope(base, scale, -1) / sqrt(base->seeds);
}

// The same for the sum over scales of ln m times weight[scale]; null: the mean.
static double rounding_error_of(const ot_baseline *base, const double *weight) {
  double squares = 0;
  for (int s = 0; s < base->scales; s++) {
    const double error = rounding_error(base, s) * (weight ? weight[s] : 1.0 / base->scales);
    squares += error * error;
  }
  return sqrt(squares);
}

// Returns whether the interval became that of rounding.
static bool widen(ot_measured *e, double se, int seeds) {
  if (!(e->se < se)) return false;
  *e = ot_measured_of(e->value, se, seeds, coverage);
  return true;
}

bool ot_baseline_widen(const ot_baseline *base, ot_measured *mean) {
  return widen(mean, rounding_error_of(base, NULL), base->seeds);
}

static void widen_all(const comparison *c, ot_multiplier *m) {
  const ot_baseline *const base = c->base;
  double trend[OT_LEDGER_SCALES], target[OT_LEDGER_SCALES], x_mean = 0, xx = 0;
  const int n = base->scales;
  for (int s = 0; s < n; s++) x_mean += base->ln_compute[s] / n;
  for (int s = 0; s < n; s++) {
    trend[s] = base->ln_compute[s] - x_mean;
    xx += trend[s] * trend[s];
  }
  for (int s = 0; s < n; s++) {
    trend[s] /= xx;
    target[s] = 1.0 / n + (c->ln_target - x_mean) * trend[s];
    widen(&m->ln_m[s], rounding_error(base, s), base->seeds);
  }
  m->by_rounding = ot_baseline_widen(base, &m->mean);
  widen(&m->trend, rounding_error_of(base, trend), base->seeds);
  widen(&m->at_target, rounding_error_of(base, target), base->seeds);
}

void ot_multiplier_estimate(const ot_baseline *base, const ot_changed *changed, double ln_target,
                            ot_multiplier *out) {
  const int n = base->scales;
  const comparison c = {base, changed, ln_target};
  const ot_jackknife jackknife = {compare, &c, base->seeds, 2 * n + 3, coverage};
  ot_measured values[2 * OT_LEDGER_SCALES + 3];
  ot_jackknife_estimate(&jackknife, values);
  memset(out, 0, sizeof *out);
  out->scales = n;
  out->pairs = base->seeds;
  for (int s = 0; s < n; s++) {
    out->ln_m[s] = values[s];
    out->slope[s] = values[n + s];
    spread(&c, s, out);
  }
  out->mean = values[2 * n];
  out->trend = values[2 * n + 1];
  out->at_target = values[2 * n + 2];
  widen_all(&c, out);
}

// ---- a stack ----

typedef struct stacking {
  const ot_baseline *base;
  const ot_stack *stack;
} stacking;

static double mean_ln_m(const ot_baseline *base, const ot_changed *changed, int left_out) {
  double sum = 0;
  for (int s = 0; s < base->scales; s++) sum += ot_ln_multiplier(base, changed, s, left_out);
  return sum / base->scales;
}

// Order: whole, sum, gap, then alone and share of each part.
static void split_rows(const void *context, int left_out, double *values) {
  const stacking *const c = context;
  const double whole = mean_ln_m(c->base, c->stack->whole, left_out);
  double sum = 0;
  for (int i = 0; i < c->stack->parts; i++) {
    values[3 + 2 * i] = mean_ln_m(c->base, &c->stack->alone[i], left_out);
    values[4 + 2 * i] = whole - mean_ln_m(c->base, &c->stack->without[i], left_out);
    sum += values[3 + 2 * i];
  }
  values[0] = whole;
  values[1] = sum;
  values[2] = whole - sum;
}

void ot_stack_estimate(const ot_baseline *base, const ot_stack *stack, ot_stack_result *out) {
  const stacking c = {base, stack};
  const ot_jackknife jackknife = {split_rows, &c, stack->seeds, 3 + 2 * stack->parts, coverage};
  ot_measured values[OT_JACKKNIFE_VALUES];
  ot_jackknife_estimate(&jackknife, values);
  for (int i = 0; i < jackknife.count; i++) ot_baseline_widen(base, &values[i]);
  out->whole = values[0];
  out->sum = values[1];
  out->gap = values[2];
  for (int i = 0; i < stack->parts; i++) {
    out->alone[i] = values[3 + 2 * i];
    out->share[i] = values[4 + 2 * i];
  }
}
