// SPDX-License-Identifier: Apache-2.0
// Least squares of relative errors, by normal equations, for every subset of terms: at most six
// terms give few subsets, and the best one with a nonnegative solution wins. A few passes with
// weights 1 / |error| (iteratively reweighted least squares: Holland and Welsch 1977) approximate
// least absolute errors.
#include "base/nonnegative_fit.h"

#include "base/math.h"
#include "base/sort.h"

enum { ROUNDS = 8 };

static const double least_error = 0.01;    // smaller errors get the same weight
static const double worth_a_term = 0.002;  // of the mean squared error

static double absolute(double x) { return x < 0 ? -x : x; }

// Sums over samples of products of terms, each term divided by the sample's value: of what x adds
// to the least constants.
typedef struct equations {
  double a[OT_FIT_TERMS][OT_FIT_TERMS];
  double b[OT_FIT_TERMS];
  double c;
  double weight;
} equations;

static equations sum_up(const ot_fit_sample *samples, int64_t count, const double *least,
                        const double *weights) {
  equations e = {0};
  for (int64_t s = 0; s < count; s++) {
    double row[OT_FIT_TERMS], rest = 1;
    for (int i = 0; i < OT_FIT_TERMS; i++) row[i] = samples[s].term[i] / samples[s].value;
    for (int i = 0; i < OT_FIT_TERMS; i++) rest -= least[i] * row[i];
    for (int i = 0; i < OT_FIT_TERMS; i++) {
      for (int j = 0; j < OT_FIT_TERMS; j++) e.a[i][j] += weights[s] * row[i] * row[j];
      e.b[i] += weights[s] * row[i] * rest;
    }
    e.c += weights[s] * rest * rest;
    e.weight += weights[s];
  }
  return e;
}

static void swap_rows(double m[OT_FIT_TERMS][OT_FIT_TERMS + 1], int i, int j, int n) {
  for (int k = 0; k <= n; k++) {
    const double kept = m[i][k];
    m[i][k] = m[j][k];
    m[j][k] = kept;
  }
}

// Gaussian elimination with row pivots; false for a singular system.
static bool eliminate(double m[OT_FIT_TERMS][OT_FIT_TERMS + 1], int n, double *x) {
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; i < n; i++) {
      if (absolute(m[i][k]) > absolute(m[pivot][k])) pivot = i;
    }
    if (absolute(m[pivot][k]) < 1e-7) return false;
    swap_rows(m, k, pivot, n);
    for (int i = k + 1; i < n; i++) {
      const double factor = m[i][k] / m[k][k];
      for (int j = k; j <= n; j++) m[i][j] -= factor * m[k][j];
    }
  }
  for (int k = n - 1; k >= 0; k--) {
    x[k] = m[k][n];
    for (int j = k + 1; j < n; j++) x[k] -= m[k][j] * x[j];
    x[k] /= m[k][k];
  }
  return true;
}

// Uses only the terms of `set`, each scaled to length 1. False without a solution >= 0.
static bool solve(const equations *e, unsigned set, double x[OT_FIT_TERMS]) {
  int index[OT_FIT_TERMS], n = 0;
  double m[OT_FIT_TERMS][OT_FIT_TERMS + 1], scale[OT_FIT_TERMS], part[OT_FIT_TERMS];
  for (int i = 0; i < OT_FIT_TERMS; i++) {
    x[i] = 0;
    if (!(set >> i & 1)) continue;
    if (e->a[i][i] <= 0) return false;
    scale[n] = 1 / ot_sqrt(e->a[i][i]);
    index[n++] = i;
  }
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) m[i][j] = e->a[index[i]][index[j]] * scale[i] * scale[j];
    m[i][n] = e->b[index[i]] * scale[i];
  }
  if (!eliminate(m, n, part)) return false;
  for (int i = 0; i < n; i++) {
    if (part[i] < 0) return false;
    x[index[i]] = part[i] * scale[i];
  }
  return true;
}

// Mean square of relative errors.
static double error_of(const equations *e, const double x[OT_FIT_TERMS]) {
  double sum = e->c;
  for (int i = 0; i < OT_FIT_TERMS; i++) {
    sum -= 2 * x[i] * e->b[i];
    for (int j = 0; j < OT_FIT_TERMS; j++) sum += x[i] * x[j] * e->a[i][j];
  }
  return sum / e->weight;
}

static int bits_of(unsigned set) {
  int count = 0;
  for (; set; set &= set - 1) count++;
  return count;
}

// Nothing above the least constants stands for no solution.
static void find_best(const equations *e, double best[OT_FIT_TERMS]) {
  double least = 0;
  bool found = false;
  for (int i = 0; i < OT_FIT_TERMS; i++) best[i] = 0;
  for (unsigned set = (1u << OT_FIT_TERMS) - 1; set > 0; set--) {
    double x[OT_FIT_TERMS];
    if (!solve(e, set, x)) continue;
    const double error = error_of(e, x) + bits_of(set) * worth_a_term * worth_a_term;
    if (found && error >= least) continue;
    found = true;
    least = error;
    for (int i = 0; i < OT_FIT_TERMS; i++) best[i] = x[i];
  }
}

double ot_fit_value(const ot_fit *fit, const ot_fit_sample *sample) {
  double sum = 0;
  for (int i = 0; i < OT_FIT_TERMS; i++) sum += fit->x[i] * sample->term[i];
  return sum;
}

static double miss(const ot_fit *fit, const ot_fit_sample *sample) {
  return absolute(ot_fit_value(fit, sample) / sample->value - 1);
}

static int by_value(const void *a, const void *b, const void *context) {
  (void)context;
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

ot_fit ot_fit_nonnegative(const ot_fit_sample *samples, int64_t count, const double *least,
                          ot_arena *arena) {
  static const double zeros[OT_FIT_TERMS];
  if (!least) least = zeros;
  ot_fit fit = {0};
  double *const numbers = ot_arena_array(arena, count, sizeof *numbers);
  for (int64_t s = 0; s < count; s++) numbers[s] = 1;
  for (int round = 0; round < ROUNDS; round++) {
    const equations e = sum_up(samples, count, least, numbers);
    find_best(&e, fit.x);
    for (int i = 0; i < OT_FIT_TERMS; i++) fit.x[i] += least[i];
    for (int64_t s = 0; s < count; s++) {
      const double error = miss(&fit, &samples[s]);
      numbers[s] = 1 / (error > least_error ? error : least_error);
    }
  }
  for (int64_t s = 0; s < count; s++) numbers[s] = miss(&fit, &samples[s]);
  ot_sort(numbers, count, sizeof *numbers, (ot_ordering){by_value, NULL}, arena);
  fit.residual = numbers[count / 2];
  return fit;
}
