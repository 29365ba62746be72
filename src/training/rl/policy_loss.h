// SPDX-License-Identifier: Apache-2.0
// Policy gradients as weights of the head: the loss of a token is weight * -log p(token), with the
// weight held constant. r = exp(logprob - behaviour) is the ratio of the trained policy to the one
// that made the token; A is the advantage of its sequence.
//
//   reinforce  A
//   tis        min(r, cap) A                        truncated importance sampling
//   cispo      min(r, cap) A, with a larger cap     (MiniMax-M1 2025; ScaleRL 2510.13786)
//   grpo       r A, but 0 if A > 0 and r > 1 + high, or A < 0 and r < 1 - low (PPO's clip)
//   gspo       s A / length, s = exp(mean log r), with that rule for s (2507.18071)
//   mis        r A, but 0 unless low <= r <= high   (masked; IcePop)
//
// so a token's gradient is that of the surrogate objective which the papers write. Pure functions.
#pragma once

#include "describe/rl.h"

typedef struct ot_policy_loss {
  ot_policy_objective objective;
  ot_policy_average average;
  double cap;        // of the ratio: tis, cispo
  double low, high;  // grpo, gspo: distances from 1; mis: bounds
} ot_policy_loss;

// The usual bounds of an objective.
ot_policy_loss ot_policy_loss_default(ot_policy_objective objective);

// Tokens of sequence i: [first[i], first[i + 1]).
typedef struct ot_policy_batch {
  int64_t sequences;
  const int64_t *first;     // [sequences + 1]
  const double *logprob;    // [first[sequences]] of the trained policy
  const double *behaviour;  // [first[sequences]] when the token was made
  const double *advantage;  // [sequences]
} ot_policy_batch;

// weights [first[sequences]], divided by the average's divisor.
void ot_policy_weights(const ot_policy_loss *loss, const ot_policy_batch *batch, double *weights);

typedef struct ot_policy_figures {
  double ess;           // of token ratios: (sum r)^2 / (n sum r^2), 1 on policy
  double sequence_ess;  // of ratios of whole sequences
  double kl;            // of behaviour and policy, nats a token: mean of r - 1 - log r
  double log_ratio;     // mean of |log r|
  double zero_share;    // of tokens that the objective's bounds leave out or cap
} ot_policy_figures;

// NaN without tokens.
void ot_policy_measure(const ot_policy_loss *loss, const ot_policy_batch *batch,
                       ot_policy_figures *out);

// Advantages of samples of one prompt: reward less the mean of the others (leave one out: Kool et
// al. 2019), without division by a deviation (Dr. GRPO 2503.20783). 0 for a single sample.
void ot_policy_advantages(const double *rewards, int64_t count, double *advantages);
