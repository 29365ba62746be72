// SPDX-License-Identifier: Apache-2.0
// Builds one period at create: for each draw its source and its index among the draws of that
// source.
#include "data/blend.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct ot_blend {
  int64_t num_sources;
  int64_t period;
  int64_t *shares;  // [num_sources] draws in a period
  int32_t *source;  // [period]
  int32_t *rank;    // [period]
};

static ot_status check_weights(const double *weights, int64_t count, double *sum) {
  OT_CHECK(count >= 1 && count <= OT_BLEND_SOURCES_MAX, OT_USAGE,
           "%lld data sources; allowed: 1 to %d", (long long)count, OT_BLEND_SOURCES_MAX);
  *sum = 0;
  for (int64_t i = 0; i < count; i++) {
    OT_CHECK(weights[i] > 0 && isfinite(weights[i]), OT_USAGE,
             "weight %g of data source %lld is not a number above 0", weights[i], (long long)i);
    *sum += weights[i];
  }
  OT_CHECK(isfinite(*sum), OT_USAGE, "the weights of the data sources are too large");
  return OT_OK;
}

// True when all weights have whole shares, at least 1, of a period of `period` draws.
static bool fits(const double *weights, int64_t count, double sum, int64_t period) {
  for (int64_t i = 0; i < count; i++) {
    const double exact = weights[i] / sum * (double)period;
    const double whole = floor(exact + 0.5);
    if (whole < 1 || fabs(exact - whole) > 1e-9) return false;
  }
  return true;
}

// Rounds shares down, to at least 1, and gives the remaining draws to the shares with the largest
// fractions; if raising shares to 1 used too many draws, the largest shares give them back.
static void round_shares(const double *weights, double sum, ot_blend *b) {
  int64_t left = b->period;
  for (int64_t i = 0; i < b->num_sources; i++) {
    const int64_t whole = (int64_t)floor(weights[i] / sum * (double)b->period);
    b->shares[i] = whole > 0 ? whole : 1;
    left -= b->shares[i];
  }
  while (left != 0) {
    const int64_t step = left > 0 ? 1 : -1;
    int64_t best = -1;
    double best_owed = 0;
    for (int64_t i = 0; i < b->num_sources; i++) {
      const double owed =
          (double)step * (weights[i] / sum * (double)b->period - (double)b->shares[i]);
      if (b->shares[i] + step < 1 || (best >= 0 && owed <= best_owed)) continue;
      best = i;
      best_owed = owed;
    }
    b->shares[best] += step;
    left -= step;
  }
}

static void choose_shares(const double *weights, double sum, ot_blend *b) {
  for (b->period = b->num_sources; b->period <= OT_BLEND_PERIOD_MAX; b->period++) {
    if (!fits(weights, b->num_sources, sum, b->period)) continue;
    for (int64_t i = 0; i < b->num_sources; i++) {
      b->shares[i] = (int64_t)floor(weights[i] / sum * (double)b->period + 0.5);
    }
    return;
  }
  b->period = OT_BLEND_PERIOD_MAX;
  round_shares(weights, sum, b);
}

// The source of draw `t` in the period, where `taken` counts previous draws: of the sources whose
// count would stay below their share of the draws plus one, the one with the earliest deadline for
// staying above its share minus one.
static int64_t choose_source(const ot_blend *b, int64_t t, const int32_t *taken) {
  int64_t best = -1;
  int64_t best_deadline = INT64_MAX;
  for (int64_t i = 0; i < b->num_sources; i++) {
    if (taken[i] * b->period >= (t + 1) * b->shares[i]) continue;
    const int64_t deadline = ((taken[i] + 1) * b->period + b->shares[i] - 1) / b->shares[i];
    if (deadline >= best_deadline) continue;
    best = i;
    best_deadline = deadline;
  }
  OT_ASSERT(best >= 0);
  return best;
}

static ot_status fill(const double *weights, int64_t count, ot_blend *b) {
  double sum = 0;
  OT_TRY(check_weights(weights, count, &sum));
  b->num_sources = count;
  b->shares = calloc((size_t)count, sizeof *b->shares);
  OT_CHECK(b->shares, OT_ENVIRONMENT, "out of memory (%lld data sources)", (long long)count);
  choose_shares(weights, sum, b);
  b->source = calloc((size_t)b->period, sizeof *b->source);
  b->rank = calloc((size_t)b->period, sizeof *b->rank);
  int32_t *const taken = calloc((size_t)count, sizeof *taken);
  if (!b->source || !b->rank || !taken) {
    free(taken);
    return ot_fail(OT_ENVIRONMENT, "out of memory (%lld data sources)", (long long)count);
  }
  for (int64_t t = 0; t < b->period; t++) {
    b->source[t] = (int32_t)choose_source(b, t, taken);
    b->rank[t] = taken[b->source[t]]++;
  }
  free(taken);
  return OT_OK;
}

ot_status ot_blend_create(const double *weights, int64_t count, ot_blend **out) {
  *out = NULL;
  ot_blend *blend = calloc(1, sizeof *blend);
  OT_CHECK(blend, OT_ENVIRONMENT, "out of memory (data sources)");
  const ot_status status = fill(weights, count, blend);
  if (status != OT_OK) ot_blend_destroy(&blend);
  *out = blend;
  return status;
}

void ot_blend_destroy(ot_blend **blend) {
  if (!*blend) return;
  free((*blend)->shares);
  free((*blend)->source);
  free((*blend)->rank);
  free(*blend);
  *blend = NULL;
}

ot_blend_draw ot_blend_at(const ot_blend *blend, int64_t i) {
  OT_ASSERT(i >= 0);
  const int64_t slot = i % blend->period;
  const int64_t source = blend->source[slot];
  return (ot_blend_draw){.source = source,
                         .before = i / blend->period * blend->shares[source] + blend->rank[slot]};
}

int64_t ot_blend_count(const ot_blend *blend, int64_t n, int64_t source) {
  int64_t count = n / blend->period * blend->shares[source];
  for (int64_t t = 0; t < n % blend->period; t++) count += blend->source[t] == source;
  return count;
}

int64_t ot_blend_share(const ot_blend *blend, int64_t source) { return blend->shares[source]; }

int64_t ot_blend_period(const ot_blend *blend) { return blend->period; }
