// SPDX-License-Identifier: Apache-2.0
// A draw inverts the cumulative sum of probabilities, in the order of ids, at a uniform number.
#include "runtime/draw.h"

#include <stdlib.h>

#include "base/math.h"
#include "base/rng.h"

enum { DRAW_STREAM = 0x67656e };

static int32_t most_probable(const double *logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
  return (int32_t)best;
}

static int by_probability(const void *a, const void *b) {
  const ot_scored_token *const x = a, *const y = b;
  if (x->value != y->value) return x->value > y->value ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static int by_id(const void *a, const void *b) {
  const ot_scored_token *const x = a, *const y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static double sum_of(const ot_scored_token *c, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += c[i].value;
  return sum;
}

static int64_t keep_from(ot_scored_token *c, int64_t n, double least) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; i++) {
    if (c[i].value >= least) c[kept++] = c[i];
  }
  return kept;
}

// The first of the sorted candidates that reach the sum `wanted` together.
static int64_t nucleus(const ot_scored_token *sorted, int64_t n, double wanted) {
  double sum = 0;
  int64_t i = 0;
  while (i < n && sum < wanted) sum += sorted[i++].value;
  return i > 0 ? i : 1;
}

// Leaves the candidates that may be drawn, in the order of ids; returns their number.
static int64_t filter(const ot_draw *draw, ot_scored_token *c, int64_t n) {
  const bool by_k = draw->top_k > 0 && draw->top_k < n, by_p = draw->top_p < 1;
  // Those with less than an equal share of what may be left out are left out: this saves sorting.
  double sum = by_p && !by_k ? sum_of(c, n) : 0;
  if (by_p && !by_k) n = keep_from(c, n, (1 - draw->top_p) * sum / (double)n);
  if (by_k || by_p) qsort(c, (size_t)n, sizeof *c, by_probability);
  if (by_k) {
    n = draw->top_k;
    sum = sum_of(c, n);
  }
  if (by_p) n = nucleus(c, n, draw->top_p * sum);
  // The largest is exp(0).
  if (draw->min_p > 0) n = keep_from(c, n, draw->min_p);
  if (by_k || by_p) qsort(c, (size_t)n, sizeof *c, by_id);
  return n;
}

int32_t ot_draw_token(const ot_draw *draw, const double *logits, int64_t n, int64_t index,
                      ot_scored_token *scratch) {
  const int32_t top = most_probable(logits, n);
  if (draw->temperature <= 0) return top;
  for (int64_t i = 0; i < n; i++) {
    const double value = ot_exp((logits[i] - logits[top]) / draw->temperature);
    scratch[i] = (ot_scored_token){.value = value, .id = (int32_t)i};
  }
  const int64_t kept = filter(draw, scratch, n);
  const uint64_t stream = DRAW_STREAM + (draw->choice << 32);
  double left = ot_rng_uniform(draw->seed, stream, (uint64_t)index) * sum_of(scratch, kept);
  for (int64_t i = 0; i < kept; i++) {
    left -= scratch[i].value;
    if (left < 0) return scratch[i].id;
  }
  return scratch[kept - 1].id;
}

void ot_draw_best(const double *logits, int64_t n, int count, ot_scored_token *best) {
  int found = 0;
  for (int64_t i = 0; i < n; i++) {
    if (found == count && !(logits[i] > best[count - 1].value)) continue;
    int at = found < count ? found++ : count - 1;
    for (; at > 0 && best[at - 1].value < logits[i]; at--) best[at] = best[at - 1];
    best[at] = (ot_scored_token){.value = logits[i], .id = (int32_t)i};
  }
}
