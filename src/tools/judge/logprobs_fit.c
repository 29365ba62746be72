// SPDX-License-Identifier: Apache-2.0
#include "judge/logprobs_fit.h"

#include <math.h>

#include "base/extremes.h"
#include "judge/attribution.h"

// As for gradients (attribution.c): five spreads, and half of a fault that is there or not.
static const double spreads = 5, decides = 0.5, least_spread = 1e-3;

void ot_logprob_candidate_add(ot_logprob_candidate *c, const ot_logprob_source *s, int64_t t,
                              double predicted) {
  const double x = s->x[t], exact = s->exact[t];
  if (isnan(predicted) || isnan(exact) || (isinf(x) && isinf(predicted))) return;
  c->count++;
  if (isinf(x) || isinf(predicted) || isinf(exact)) {
    c->apart++;
    return;
  }
  const double d = x - exact, h = predicted - exact;
  c->dd += d * d;
  c->dh += d * h;
  c->hh += h * h;
  c->rest += (x - predicted) * (x - predicted);
  for (int k = 0; k < OT_LOGPROB_TYPES; k++) {
    for (int i = 0; i < 2 && s->own[k][i]; i++) c->own_h[k][i] += (s->own[k][i][t] - exact) * h;
  }
}

// How far rounding moves the factor of a cause: as in own runs, and if it were independent.
static double spread_of(const ot_logprob_candidate *c, const ot_logprob_source *s, int type) {
  const double own = fabs(c->own_h[type][0] - c->own_h[type][1]) / c->hh;
  return ot_larger(ot_larger(own, s->rounding[type] / sqrt(c->hh)), least_spread);
}

double ot_logprob_sensitivity(const ot_logprob_candidate *c, const ot_logprob_source *s, int type) {
  if (!(c->hh > 0)) return INFINITY;
  if (c->size > 0) return spreads * c->noise[type];
  const double rms = sqrt(c->hh / (double)(c->count - c->apart));
  const double shows = OT_RATIO_FINE * s->rounding[type] / rms;
  return ot_larger(spreads * spread_of(c, s, type), ot_smaller(decides, shows));
}

static double rest_of(const ot_logprob_candidate *c) {
  return c->count > c->apart ? sqrt(c->rest / (double)(c->count - c->apart)) : INFINITY;
}

static bool stands_out(const ot_logprob_candidate *c, const ot_logprob_source *s, int type) {
  const bool open = c->type < 0 || c->type == type;
  if (!open || !(c->hh > 0) || 50 * c->apart > c->count || 4 * c->count < s->known) return false;
  if (c->size > 0 && c->size < spreads * c->noise[type]) return false;
  const double factor = (c->dh - (c->own_h[type][0] + c->own_h[type][1]) / 2) / c->hh;
  return factor >= decides && factor >= spreads * spread_of(c, s, type) && c->rest < c->dd;
}

// The candidate that leaves least, at most `most`.
static const ot_logprob_candidate *best_of(const ot_logprob_source *s,
                                           const ot_logprob_candidate *candidates, int count,
                                           int type, double most) {
  const ot_logprob_candidate *best = NULL;
  for (int i = 0; i < count; i++) {
    const ot_logprob_candidate *const c = &candidates[i];
    if (rest_of(c) > most || !stands_out(c, s, type)) continue;
    if (!best || rest_of(c) < rest_of(best)) best = c;
  }
  return best;
}

static double direct_of(const ot_logprob_source *s) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t t = 0; t < s->count; t++) {
    if (!isfinite(s->x[t]) || !isfinite(s->exact[t])) continue;
    sum += (s->x[t] - s->exact[t]) * (s->x[t] - s->exact[t]);
    count++;
  }
  return count > 0 ? sqrt(sum / (double)count) : 0;
}

ot_logprob_verdict ot_logprob_explain(const ot_logprob_source *s,
                                      const ot_logprob_candidate *candidates, int count) {
  ot_logprob_verdict out = {.type = -1, .direct = direct_of(s)};
  out.rest = out.direct;
  for (int type = 0; type < OT_LOGPROB_TYPES; type++) {
    const double most = OT_RATIO_FINE * s->rounding[type];
    if (most == 0) continue;
    const ot_logprob_candidate *const best = best_of(s, candidates, count, type, most);
    if (!best && out.direct > most) continue;
    out.type = type;
    out.cause = best;
    if (best) out.rest = rest_of(best);
    return out;
  }
  return out;
}
