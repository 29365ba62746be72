// SPDX-License-Identifier: Apache-2.0
// The distance between two sets of logits of the same tokens, in terms of log-probabilities. Pure
// except for the C mathematics library.
#pragma once

#include <stdint.h>

// ln p of `target` from the logits [vocab] of one token.
double ot_log_probability(const double *logits, int64_t vocab, int32_t target);

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
