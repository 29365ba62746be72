// SPDX-License-Identifier: Apache-2.0
// Accumulates in float64, token by token.
#include "judge/log_probability.h"

#include <math.h>

// ln sum exp of a token's logits, and their argmax.
static double log_sum(const double *logits, int64_t vocab, int64_t *top) {
  *top = 0;
  for (int64_t i = 1; i < vocab; i++) *top = logits[i] > logits[*top] ? i : *top;
  double sum = 0;
  for (int64_t i = 0; i < vocab; i++) sum += exp(logits[i] - logits[*top]);
  return logits[*top] + log(sum);
}

double ot_log_probability(const double *logits, int64_t vocab, int32_t target) {
  int64_t top;
  return logits[target] - log_sum(logits, vocab, &top);
}

// One token of both.
typedef struct row_pair {
  double a_target, b_target;  // ln p
  double divergence;
  int64_t a_top, b_top;
} row_pair;

static row_pair compare_row(const ot_logit_pair *pair, int64_t row) {
  const double *const a = pair->a + row * pair->vocab, *const b = pair->b + row * pair->vocab;
  const int32_t target = pair->targets[row];
  row_pair out;
  const double a_sum = log_sum(a, pair->vocab, &out.a_top);
  const double b_sum = log_sum(b, pair->vocab, &out.b_top);
  out.divergence = 0;
  for (int64_t i = 0; i < pair->vocab; i++) {
    const double p = a[i] - a_sum;
    out.divergence += exp(p) * (p - (b[i] - b_sum));
  }
  out.a_target = a[target] - a_sum;
  out.b_target = b[target] - b_sum;
  return out;
}

static double larger(double a, double b) { return a > b || a != a ? a : b; }

void ot_log_ratios_add(ot_log_ratios *s, double x, int64_t token) {
  const double r = exp(x);
  if (s->tokens++ == 0 || !(fabs(x) <= s->max)) s->worst = token;
  s->sum += x;
  s->squares += x * x;
  s->magnitude += fabs(x);
  s->max = larger(fabs(x), s->max);
  s->ratio += r;
  s->ratio_square += r * r;
  s->excess += expm1(x) - x;
  s->clipped += !(fabs(r - 1) <= OT_RATIO_CLIP);
}

double ot_log_ratios_sample_size(const ot_log_ratios *s) {
  return s->ratio * s->ratio / ((double)s->tokens * s->ratio_square);
}

ot_drift_figures ot_drift_compare(const ot_logit_pair *pair) {
  ot_drift_figures f = {.worst = -1};
  ot_log_ratios sums = {.worst = -1};
  for (int64_t row = 0; row < pair->rows; row++) {
    if (pair->targets[row] < 0) continue;
    const row_pair r = compare_row(pair, row);
    ot_log_ratios_add(&sums, r.b_target - r.a_target, row);
    f.divergence += r.divergence;
    f.max_change = larger(fabs(exp(r.b_target) - exp(r.a_target)), f.max_change);
    f.flips += r.a_top != r.b_top;
  }
  if (sums.tokens == 0) return f;
  f.tokens = sums.tokens;
  f.worst = sums.worst;
  f.max = sums.max;
  f.mean = sums.magnitude / (double)sums.tokens;
  f.divergence /= (double)sums.tokens;
  f.sample_size = ot_log_ratios_sample_size(&sums);
  return f;
}
