// SPDX-License-Identifier: Apache-2.0
// How far two sets of logits of the same tokens are from each other, in what training and sampling
// make of them: log-probabilities. Pure but for the C library's mathematics.
#pragma once

#include <stdint.h>

// ln p of `target` by one row of logits [vocab].
double ot_log_probability(const double *logits, int64_t vocab, int32_t target);

typedef struct ot_logit_pair {
  const double *a, *b;     // [rows, vocab] `a` is taken as the truth
  const int32_t *targets;  // [rows] the tokens whose probabilities are compared; < 0: left out
  int64_t rows, vocab;
} ot_logit_pair;

// Over the rows with a target. r = p_b(target) / p_a(target).
typedef struct ot_drift_figures {
  int64_t tokens;
  double mean, max;    // |ln r|
  double divergence;   // mean KL(a || b) over the whole vocabulary, nats
  double sample_size;  // (sum r)^2 / (n sum r^2): what share of samples importance weights leave
  double max_change;   // |p_b - p_a| of a target
  int64_t flips;       // rows whose most probable token differs
  int64_t worst;       // row with the largest |ln r|
} ot_drift_figures;

ot_drift_figures ot_drift_compare(const ot_logit_pair *pair);
