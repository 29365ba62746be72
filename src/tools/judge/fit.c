// SPDX-License-Identifier: Apache-2.0
#include "judge/fit.h"

#include <math.h>

#include "base/extremes.h"
#include "base/sort.h"

// The normal equations of a fit.
typedef struct equations {
  int count;
  double matrix[OT_FIT_MOST][OT_FIT_MOST];
  double error[OT_FIT_MOST], own[OT_FIT_MOST], again[OT_FIT_MOST];
} equations;

static bool is_member(const ot_factor_request *request, int tensor) {
  return !request->members || request->members[tensor];
}

static void add_tensor(const ot_evidence *e, const ot_factor_request *r, int tensor, equations *q) {
  const ot_evidence_tensor *const t = &e->tensors[tensor];
  const double own = ot_evidence_own(e, t);
  if (own == 0) return;
  const double weight = (double)t->elements / own / own;
  for (int i = 0; i < r->count; i++) {
    const int a = r->vectors[i];
    q->error[i] += weight * ot_evidence_product(e, t, a, OT_EVIDENCE_ERROR);
    q->own[i] += weight * ot_evidence_product(e, t, a, OT_EVIDENCE_OWN);
    q->again[i] += weight * ot_evidence_product(e, t, a, OT_EVIDENCE_OWN_AGAIN);
    for (int k = 0; k < r->count; k++)
      q->matrix[i][k] += weight * ot_evidence_product(e, t, a, r->vectors[k]);
  }
}

// Cholesky in place, of the matrix scaled to a diagonal of ones. False if it is singular.
static bool factorize(equations *q, double *scale) {
  static const double independent = 1e-10;
  for (int i = 0; i < q->count; i++) {
    if (!(q->matrix[i][i] > 0)) return false;
    scale[i] = 1 / sqrt(q->matrix[i][i]);
  }
  for (int i = 0; i < q->count; i++) {
    for (int k = 0; k <= i; k++) {
      double sum = q->matrix[i][k] * scale[i] * scale[k];
      for (int j = 0; j < k; j++) sum -= q->matrix[i][j] * q->matrix[k][j];
      if (i == k && !(sum > independent)) return false;
      q->matrix[i][k] = i == k ? sqrt(sum) : sum / q->matrix[k][k];
    }
  }
  return true;
}

static void solve(const equations *q, const double *scale, const double *right, double *out) {
  for (int i = 0; i < q->count; i++) {
    double sum = right[i] * scale[i];
    for (int k = 0; k < i; k++) sum -= q->matrix[i][k] * out[k];
    out[i] = sum / q->matrix[i][i];
  }
  for (int i = q->count - 1; i >= 0; i--) {
    for (int k = i + 1; k < q->count; k++) out[i] -= q->matrix[k][i] * out[k];
    out[i] /= q->matrix[i][i];
  }
  for (int i = 0; i < q->count; i++) out[i] *= scale[i];
}

// The spread of factor `index` if the roundings of elements are independent: the weights are the
// inverses of their squares, so that it is the root of a diagonal element of the inverse matrix.
static double independent_spread(const equations *q, const double *scale, int index) {
  double unit[OT_FIT_MOST] = {0}, column[OT_FIT_MOST];
  unit[index] = 1;
  solve(q, scale, unit, column);
  return sqrt(fmax(column[index], 0));
}

// Two own runs may agree by chance, and share what makes them differ from the recomputed step,
// which two records share, too.
static double own_spread(const ot_evidence *e, double own, double again) {
  const double apart = fabs(own - again);
  return e->between ? apart : ot_larger(apart, ot_larger(fabs(own), fabs(again)));
}

double ot_factor_rest(const ot_evidence *e, const ot_factor_request *r, const double *factors,
                      int tensor) {
  static const double resolved = 1e-14;  // of squares: what cancellation leaves
  const ot_evidence_tensor *const t = &e->tensors[tensor];
  const double error = ot_evidence_product(e, t, OT_EVIDENCE_ERROR, OT_EVIDENCE_ERROR);
  const double gradient = ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT);
  double rest = error, explained = gradient;  // squares; of the gradient with the vectors
  for (int i = 0; i < r->count; i++) {
    rest -= 2 * factors[i] * ot_evidence_product(e, t, r->vectors[i], OT_EVIDENCE_ERROR);
    explained += 2 * factors[i] * ot_evidence_product(e, t, r->vectors[i], OT_EVIDENCE_GRADIENT);
    for (int k = 0; k < r->count; k++) {
      const double both = ot_evidence_product(e, t, r->vectors[i], r->vectors[k]);
      rest += factors[i] * factors[k] * both;
      explained += factors[i] * factors[k] * both;
    }
  }
  // Rounding of a gradient that the fault makes longer is larger.
  const double scale = gradient > 0 ? sqrt(ot_larger(1, explained / gradient)) : 1;
  const double own = scale * ot_evidence_own(e, t);
  rest -= resolved * error;
  return !(rest > 0) ? 0 : own > 0 ? sqrt(rest) / own : INFINITY;
}

static void measure_rest(const ot_evidence *e, const ot_factor_request *r, const double *factors,
                         ot_factor_fit *out) {
  double *const rests = ot_arena_array(e->arena, e->num_tensors + 1, sizeof *rests);
  int64_t count = 0;
  out->worst = -1;
  out->rest = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    if (!is_member(r, t)) continue;
    const double rest = rests[count++] = ot_factor_rest(e, r, factors, t);
    if (out->worst >= 0 && rest <= out->rest) continue;
    out->rest = rest;
    out->worst = t;
  }
  out->typical = count > 0 ? ot_median(rests, count, e->arena) : 0;
}

bool ot_factor_fit_find(const ot_evidence *e, const ot_factor_request *r, ot_factor_fit *out) {
  equations q = {.count = r->count};
  double scale[OT_FIT_MOST], found[OT_FIT_MOST], own[OT_FIT_MOST], again[OT_FIT_MOST];
  *out = (ot_factor_fit){.count = r->count};
  for (int t = 0; t < e->num_tensors; t++) {
    if (is_member(r, t)) add_tensor(e, r, t, &q);
  }
  if (!factorize(&q, scale)) return false;
  solve(&q, scale, q.error, found);
  solve(&q, scale, q.own, own);
  solve(&q, scale, q.again, again);
  for (int i = 0; i < r->count; i++) {
    out->factor[i] = found[i] - (e->between ? 0 : (own[i] + again[i]) / 2);
    out->spread[i] = ot_larger(own_spread(e, own[i], again[i]), independent_spread(&q, scale, i));
  }
  measure_rest(e, r, found, out);
  return true;
}
