// SPDX-License-Identifier: Apache-2.0
#include "judge/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extremes.h"
#include "base/sort.h"
#include "base/status.h"
#include "base/text_builder.h"

ot_evidence ot_evidence_create(ot_arena *arena, int num_hypotheses, ot_dtype stored) {
  OT_ASSERT(num_hypotheses >= 0 && OT_EVIDENCE_HYPOTHESES + num_hypotheses <= OT_EVIDENCE_MOST);
  return (ot_evidence){.arena = arena,
                       .num_vectors = OT_EVIDENCE_HYPOTHESES + num_hypotheses,
                       .unit = ot_dtype_roundoff(stored)};
}

// The name with each number between dots replaced by "*"; *layer: the first of them.
static const char *kind_of(ot_arena *arena, const char *name, int *layer) {
  ot_text_builder kind = {.arena = arena};
  *layer = -1;
  for (const char *at = name; *at != '\0';) {
    const size_t part = strcspn(at, "."), digits = strspn(at, "0123456789");
    const bool number = digits > 0 && digits == part;
    if (number && *layer < 0) *layer = atoi(at);
    ot_text_append(&kind, number ? "*" : at, number ? 1 : (int64_t)part);
    at += part;
    if (*at == '.') ot_text_append(&kind, at++, 1);
  }
  return ot_text_builder_text(&kind);
}

ot_evidence_tensor *ot_evidence_add(ot_evidence *e, const char *name) {
  e->tensors =
      ot_arena_grow(e->arena, e->tensors, e->num_tensors, &e->capacity, sizeof *e->tensors);
  ot_evidence_tensor *const t = &e->tensors[e->num_tensors++];
  *t = (ot_evidence_tensor){
      .name = name,
      .products =
          ot_arena_array(e->arena, (int64_t)e->num_vectors * e->num_vectors, sizeof *t->products)};
  t->kind = kind_of(e->arena, name, &t->layer);
  return t;
}

// The vectors at element `i`.
static void read_vectors(const ot_evidence *e, const ot_evidence_values *v, int64_t i,
                         double *out) {
  const double g = v->gradient[i];
  out[OT_EVIDENCE_GRADIENT] = g;
  out[OT_EVIDENCE_ERROR] = v->recorded[i] - g;
  out[OT_EVIDENCE_OWN] = v->own[i] - g;
  out[OT_EVIDENCE_OWN_AGAIN] = v->own_again[i] - g;
  out[OT_EVIDENCE_WEIGHT] = v->weight[i];
  for (int k = OT_EVIDENCE_HYPOTHESES; k < e->num_vectors; k++) {
    const double *const h = v->hypotheses[k - OT_EVIDENCE_HYPOTHESES];
    out[k] = h ? h[i] - g : 0;
  }
}

void ot_evidence_measure(const ot_evidence *e, ot_evidence_tensor *t, const ot_evidence_values *v,
                         int64_t count) {
  const int n = e->num_vectors;
  double at[OT_EVIDENCE_MOST];
  t->elements += count;
  for (int64_t i = 0; i < count; i++) {
    read_vectors(e, v, i, at);
    if (!isfinite(v->recorded[i])) {
      t->not_finite++;
      at[OT_EVIDENCE_ERROR] = 0;
    }
    for (int a = 0; a < n; a++) {
      for (int b = a; b < n; b++) t->products[a * n + b] += at[a] * at[b];
    }
  }
  for (int a = 0; a < n; a++) {
    for (int b = 0; b < a; b++) t->products[a * n + b] = t->products[b * n + a];
  }
}

double ot_evidence_own(const ot_evidence *e, const ot_evidence_tensor *t) {
  const double own = ot_evidence_product(e, t, OT_EVIDENCE_OWN, OT_EVIDENCE_OWN);
  const double again = ot_evidence_product(e, t, OT_EVIDENCE_OWN_AGAIN, OT_EVIDENCE_OWN_AGAIN);
  const double length = ot_evidence_product(e, t, OT_EVIDENCE_GRADIENT, OT_EVIDENCE_GRADIENT);
  return sqrt(fmax(fmax(own, again), e->unit * e->unit * length));
}

double ot_evidence_ratio(const ot_evidence *e, const ot_evidence_tensor *t) {
  const double error = sqrt(ot_evidence_product(e, t, OT_EVIDENCE_ERROR, OT_EVIDENCE_ERROR));
  const double own = ot_evidence_own(e, t);
  return error == 0 ? 0 : own > 0 ? error / own : INFINITY;
}

double ot_evidence_largest_ratio(const ot_evidence *e) {
  double largest = 0;
  for (int t = 0; t < e->num_tensors; t++)
    largest = ot_larger(ot_evidence_ratio(e, &e->tensors[t]), largest);
  return largest;
}

double ot_evidence_typical_ratio(const ot_evidence *e, ot_arena *scratch) {
  double *const ratios = ot_arena_array(scratch, e->num_tensors + 1, sizeof *ratios);
  for (int t = 0; t < e->num_tensors; t++) ratios[t] = ot_evidence_ratio(e, &e->tensors[t]);
  return e->num_tensors > 0 ? ot_median(ratios, e->num_tensors, scratch) : 0;
}
