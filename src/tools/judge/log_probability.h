// SPDX-License-Identifier: Apache-2.0
// The distance between two sets of logits of the same tokens, in terms of log-probabilities. Pure
// except for the C mathematics library.
#pragma once

#include <stdint.h>

// ln p of `target` from the logits [vocab] of one token.
double ot_log_probability(const double *logits, int64_t vocab, int32_t target);

// Sums over tokens of x = ln r, r = p_b(token) / p_a(token).
typedef struct ot_log_ratios {
  int64_t tokens;
  double sum, squares;         // of x, x^2
  double magnitude, max;       // of |x|; its maximum
  double ratio, ratio_square;  // of r, r^2
  double excess;               // of r - 1 - x
  int64_t clipped;             // tokens with |r - 1| > OT_RATIO_CLIP
  int64_t worst;               // token with the largest |x|; -1: none
} ot_log_ratios;

// The usual limit of ratios in policy gradients: Schulman et al. 2017 (PPO, arXiv 1707.06347),
// sec. 6.1.
#define OT_RATIO_CLIP 0.2

void ot_log_ratios_add(ot_log_ratios *sums, double x, int64_t token);

// (sum r)^2 / (n sum r^2): the effective share of samples of a after weighting with r (Kish 1965).
double ot_log_ratios_sample_size(const ot_log_ratios *sums);

typedef struct ot_logit_pair {
  const double *a, *b;     // [rows, vocab] `a` is the reference
  const int32_t *targets;  // [rows] tokens whose probabilities are compared; < 0: skipped
  int64_t rows, vocab;
} ot_logit_pair;

// Over the tokens with a target. r = p_b(target) / p_a(target).
typedef struct ot_drift_figures {
  int64_t tokens;
  double mean, max;    // |ln r|
  double divergence;   // mean KL(a || b) over the whole vocabulary, nats
  double sample_size;  // (sum r)^2 / (n sum r^2): effective share of samples after weighting
  double max_change;   // |p_b - p_a| of a target
  int64_t flips;       // tokens whose argmax differs
  int64_t worst;       // token with the largest |ln r|
} ot_drift_figures;

ot_drift_figures ot_drift_compare(const ot_logit_pair *pair);
