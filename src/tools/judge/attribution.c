// SPDX-License-Identifier: Apache-2.0
#include "judge/attribution.h"

#include <math.h>

#include "base/extremes.h"
#include "base/status.h"
#include "base/text.h"

// A factor stands out if it is five times its spread. The factor of a step that was computed under
// a hypothesis is 1, so half of it is needed; so it is of any hypothesis while every tensor agrees.
static const double spreads = 5, decides = 0.5;
// Two own runs may agree by chance: no spread is taken to be smaller.
static const double least_spread = 1e-4, least_faint_spread = 0.05, least_scale_spread = 4e-4;

typedef struct explainer {
  const ot_evidence *evidence;
  const ot_hypothesis *hypotheses;
  bool *bad;  // [num_tensors] above OT_RATIO_FINE
  int num_bad;
  ot_attributions *out;
} explainer;

// ---- explanations of all tensors ----

typedef struct attempt {
  ot_factor_request request;
  ot_factor_fit fit;
} attempt;

static bool has_vector(const ot_factor_request *r, int vector) {
  for (int i = 0; i < r->count; i++) {
    if (r->vectors[i] == vector) return true;
  }
  return false;
}

static double least_of(const explainer *x, int vector) {
  if (vector == OT_EVIDENCE_GRADIENT) return least_scale_spread;
  return x->num_bad > 0 ? least_spread : least_faint_spread;
}

static bool stands_out(const explainer *x, const attempt *a, int i) {
  const int vector = a->request.vectors[i];
  const double size = fabs(a->fit.factor[i]);
  if (size < spreads * ot_larger(a->fit.spread[i], least_of(x, vector))) return false;
  if (vector == OT_EVIDENCE_GRADIENT) return true;
  const bool whole = x->hypotheses[vector - OT_EVIDENCE_HYPOTHESES].form == OT_FAULT_WHOLE;
  return size >= decides || (x->num_bad > 0 && !whole);
}

static bool is_complete(const explainer *x, const attempt *a) {
  for (int i = 0; i < a->request.count; i++) {
    if (!stands_out(x, a, i)) return false;
  }
  return a->fit.rest <= OT_RATIO_FINE && a->fit.typical <= OT_RATIO_TYPICAL;
}

static bool try_vectors(const explainer *x, attempt *a) {
  return ot_factor_fit_find(x->evidence, &a->request, &a->fit) && is_complete(x, a);
}

// The best complete attempt with `count` hypotheses, and with a common factor if `scaled`.
typedef struct best {
  bool found;
  attempt attempt;
} best;

static void keep_better(const attempt *a, best *out) {
  if (out->found && a->fit.rest >= out->attempt.fit.rest) return;
  *out = (best){true, *a};
}

static void try_all(const explainer *x, int count, bool scaled, best *out) {
  const int first = OT_EVIDENCE_HYPOTHESES, end = x->evidence->num_vectors;
  for (int i = first; i < (count > 0 ? end : first + 1); i++) {
    for (int k = count > 1 ? i + 1 : i; k < (count > 1 ? end : i + 1); k++) {
      attempt a = {.request = {.count = 0}};
      if (count > 0) a.request.vectors[a.request.count++] = i;
      if (count > 1) a.request.vectors[a.request.count++] = k;
      if (scaled) a.request.vectors[a.request.count++] = OT_EVIDENCE_GRADIENT;
      if (try_vectors(x, &a)) keep_better(&a, out);
    }
  }
}

// ---- what is added ----

static ot_attribution *add(explainer *x, ot_attribution_kind kind) {
  ot_arena *const arena = x->evidence->arena;
  ot_attributions *const all = x->out;
  all->list = ot_arena_grow(arena, all->list, all->count, &all->capacity, sizeof *all->list);
  ot_attribution *const e = &all->list[all->count++];
  *e = (ot_attribution){
      .kind = kind,
      .scale = 1,
      .first = -1,
      .members = ot_arena_array(arena, x->evidence->num_tensors + 1, sizeof *e->members)};
  return e;
}

static void add_member(const explainer *x, int tensor, double rest, ot_attribution *e) {
  e->members[tensor] = true;
  e->num_members++;
  if (e->first < 0) e->first = tensor;
  e->before = ot_larger(e->before, ot_evidence_ratio(x->evidence, &x->evidence->tensors[tensor]));
  e->rest = ot_larger(e->rest, rest);
}

// Whether a vector of the attempt is not zero on the tensor.
static bool reaches(const explainer *x, const attempt *a, int tensor) {
  for (int i = 0; i < a->request.count; i++) {
    const int vector = a->request.vectors[i];
    if (ot_evidence_product(x->evidence, &x->evidence->tensors[tensor], vector, vector) > 0)
      return true;
  }
  return false;
}

static void add_attempt(explainer *x, const attempt *a, bool faint) {
  const bool factor = a->request.count == 1 && a->request.vectors[0] == OT_EVIDENCE_GRADIENT;
  ot_attribution *const e = add(x, factor ? OT_EXPLAINED_BY_FACTOR : OT_EXPLAINED_BY_HYPOTHESES);
  e->faint = faint;
  for (int i = 0; i < a->request.count; i++) {
    if (a->request.vectors[i] == OT_EVIDENCE_GRADIENT) {
      e->scale = 1 + a->fit.factor[i];
      continue;
    }
    e->vectors[e->count] = a->request.vectors[i];
    e->factor[e->count] = a->fit.factor[i];
    e->spread[e->count++] = a->fit.spread[i];
  }
  for (int t = 0; t < x->evidence->num_tensors; t++) {
    if (reaches(x, a, t))
      add_member(x, t, ot_factor_rest(x->evidence, &a->request, a->fit.factor, t), e);
  }
}

// ---- factors of some tensors ----

// The factor of the gradient alone on a tensor, and what it leaves; false: it explains nothing.
static bool fit_one(const explainer *x, int tensor, int vector, double *factor, double *rest) {
  const ot_evidence_tensor *const t = &x->evidence->tensors[tensor];
  const double square = ot_evidence_product(x->evidence, t, vector, vector);
  const ot_factor_request one = {.count = 1, .vectors = {vector}};
  if (!(square > 0)) return false;
  *factor = ot_evidence_product(x->evidence, t, vector, OT_EVIDENCE_ERROR) / square;
  *rest = ot_factor_rest(x->evidence, &one, factor, tensor);
  return *rest <= OT_RATIO_FINE;
}

// Whether the rest of an error is rounding, or at most `part` of the error: an error that is hardly
// beyond rounding has some part along any vector.
static bool is_small(const explainer *x, int tensor, double rest, double part) {
  const double before = ot_evidence_ratio(x->evidence, &x->evidence->tensors[tensor]);
  return rest <= ot_larger(OT_RATIO_TYPICAL, part * before);
}

// Whether a tensor shows by itself that a vector is in its error.
static bool is_decisive(const explainer *x, int tensor, double rest) {
  static const double part = 0.125;
  return ot_evidence_ratio(x->evidence, &x->evidence->tensors[tensor]) >= OT_RATIO_FINDING &&
         is_small(x, tensor, rest, part);
}

// How far rounding alone moves the factor of a tensor.
static double factor_error(const explainer *x, int tensor) {
  const ot_evidence_tensor *const t = &x->evidence->tensors[tensor];
  const double length =
      sqrt(ot_evidence_product(x->evidence, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT));
  return length > 0 ? OT_RATIO_FINE * ot_evidence_own(x->evidence, t) / length : INFINITY;
}

// All tensors that are left whose factor is that of `tensor`.
static void add_factor(explainer *x, int tensor, double scale, bool *left) {
  static const double part = 0.5;
  ot_attribution *const e = add(x, OT_EXPLAINED_BY_FACTOR);
  double weights = 0, sum = 0;
  for (int t = 0; t < x->evidence->num_tensors; t++) {
    double factor, rest;
    if (!left[t] || !fit_one(x, t, OT_EVIDENCE_GRADIENT, &factor, &rest)) continue;
    if (!is_small(x, t, rest, part)) continue;
    const double error = factor_error(x, t) * ot_larger(1, fabs(1 + factor));
    const double first = factor_error(x, tensor) * ot_larger(1, fabs(scale));
    if (fabs(1 + factor - scale) > error + first) continue;
    left[t] = false;
    add_member(x, t, rest, e);
    weights += 1 / error / error;
    sum += (1 + factor) / error / error;
  }
  e->scale = weights > 0 && isfinite(weights) ? sum / weights : scale;
}

static void explain_parts(explainer *x, bool *left) {
  for (int t = 0; t < x->evidence->num_tensors; t++) {
    double factor, rest;
    if (left[t] && fit_one(x, t, OT_EVIDENCE_GRADIENT, &factor, &rest) && is_decisive(x, t, rest))
      add_factor(x, t, 1 + factor, left);
  }
  ot_attribution *stale = NULL;
  for (int t = 0; t < x->evidence->num_tensors; t++) {
    double factor, rest;
    if (!left[t] || !fit_one(x, t, OT_EVIDENCE_WEIGHT, &factor, &rest)) continue;
    if (!is_decisive(x, t, rest)) continue;
    if (!stale) stale = add(x, OT_EXPLAINED_BY_WEIGHTS);
    add_member(x, t, rest, stale);
    left[t] = false;
  }
}

static void add_unexplained(explainer *x, const bool *left) {
  ot_attribution *e = NULL;
  for (int t = 0; t < x->evidence->num_tensors; t++) {
    if (!left[t]) continue;
    if (!e) e = add(x, OT_UNEXPLAINED);
    add_member(x, t, ot_evidence_ratio(x->evidence, &x->evidence->tensors[t]), e);
  }
}

// ---- the order of attempts ----

static bool explain_together(explainer *x) {
  static const struct {
    int count;
    bool scaled;
  } order[] = {{0, true}, {1, false}, {1, true}, {2, false}, {2, true}};
  for (int i = 0; i < OT_COUNT(order); i++) {
    best found = {false};
    try_all(x, order[i].count, order[i].scaled, &found);
    if (found.found) {
      add_attempt(x, &found.attempt, false);
      return true;
    }
  }
  return false;
}

// Explains all tensors together if one attempt does; else those that it can by a factor or by their
// weights, and leaves the others unexplained.
static void explain_bad(explainer *x) {
  if (explain_together(x)) return;
  bool *const left = ot_arena_array(x->evidence->arena, x->evidence->num_tensors + 1, sizeof *left);
  for (int t = 0; t < x->evidence->num_tensors; t++) left[t] = x->bad[t];
  explain_parts(x, left);
  add_unexplained(x, left);
}

// Faults that no tensor shows alone: one hypothesis after the other, the one that stands out most.
static void explain_faint(explainer *x) {
  attempt all = {.request = {.count = 0}};
  for (int v = OT_EVIDENCE_HYPOTHESES; v <= x->evidence->num_vectors; v++) {
    attempt next = all, chosen = {.request = {.count = 0}};
    double most = 0;
    for (int i = OT_EVIDENCE_HYPOTHESES - 1; i < x->evidence->num_vectors; i++) {
      const int vector = i < OT_EVIDENCE_HYPOTHESES ? OT_EVIDENCE_GRADIENT : i;
      if (all.request.count == OT_FIT_MOST || has_vector(&all.request, vector)) continue;
      next.request = all.request;
      next.request.vectors[next.request.count++] = vector;
      if (!ot_factor_fit_find(x->evidence, &next.request, &next.fit)) continue;
      const int last = next.request.count - 1;
      const double spread = ot_larger(next.fit.spread[last], least_of(x, vector));
      const double height = fabs(next.fit.factor[last]) / spread;
      if (!stands_out(x, &next, last) || height <= most) continue;
      most = height;
      chosen = next;
    }
    if (most == 0) break;
    all = chosen;
  }
  if (all.request.count > 0) add_attempt(x, &all, true);
}

ot_attributions ot_attribute_errors(const ot_evidence *evidence, const ot_hypothesis *hypotheses) {
  ot_attributions out = {0};
  explainer x = {.evidence = evidence,
                 .hypotheses = hypotheses,
                 .bad = ot_arena_array(evidence->arena, evidence->num_tensors + 1, sizeof *x.bad),
                 .out = &out};
  for (int t = 0; t < evidence->num_tensors; t++) {
    x.bad[t] = ot_evidence_ratio(evidence, &evidence->tensors[t]) > OT_RATIO_FINE;
    x.num_bad += x.bad[t];
  }
  if (x.num_bad > 0) {
    explain_bad(&x);
  } else if (evidence->num_tensors > 0) {
    explain_faint(&x);
  }
  return out;
}

// ---- what would have shown ----

// The smallest factor that stands out while every tensor agrees.
static double least_faint(int vector, double spread) {
  if (vector == OT_EVIDENCE_GRADIENT) return spreads * ot_larger(spread, least_scale_spread);
  return ot_larger(decides, spreads * ot_larger(spread, least_faint_spread));
}

// The smallest factor with which some healthy tensor would no longer agree: with an explanation, or
// far enough for a finding without.
static double least_loud(const ot_evidence *e, int vector, double spread) {
  const double named = OT_RATIO_FINE + OT_RATIO_TYPICAL, bare = OT_RATIO_FINDING + OT_RATIO_TYPICAL;
  double least = INFINITY;
  for (int t = 0; t < e->num_tensors; t++) {
    const double length = sqrt(ot_evidence_product(e, &e->tensors[t], vector, vector));
    const double own = ot_evidence_own(e, &e->tensors[t]);
    if (length > 0) least = ot_smaller(least, own / length);
  }
  return ot_smaller(bare * least,
                    ot_larger(named * least, spreads * ot_larger(spread, least_spread)));
}

double ot_attribution_sensitivity(const ot_evidence *evidence, int vector) {
  const ot_factor_request one = {.count = 1, .vectors = {vector}};
  ot_factor_fit fit;
  if (!ot_factor_fit_find(evidence, &one, &fit)) return INFINITY;
  return ot_smaller(least_faint(vector, fit.spread[0]),
                    least_loud(evidence, vector, fit.spread[0]));
}

bool ot_attribution_is_absent(const ot_evidence *evidence, int vector) {
  static const double negligible = 0.25;
  const ot_factor_request one = {.count = 1, .vectors = {vector}};
  ot_factor_fit fit;
  if (ot_evidence_largest_ratio(evidence) > OT_RATIO_FINE) return false;
  return ot_factor_fit_find(evidence, &one, &fit) && fabs(fit.factor[0]) < negligible &&
         least_faint(vector, fit.spread[0]) <= decides;
}
