// SPDX-License-Identifier: Apache-2.0
#include "rl/policy_loss.h"

#include <math.h>

#include "base/status.h"

ot_policy_loss ot_policy_loss_default(ot_policy_objective objective) {
  static const ot_policy_loss defaults[OT_POLICY_OBJECTIVES] = {
      [OT_POLICY_TIS] = {.cap = 2},
      [OT_POLICY_CISPO] = {.cap = 5},
      [OT_POLICY_GRPO] = {.low = 0.2, .high = 0.28},
      [OT_POLICY_GSPO] = {.low = 3e-4, .high = 4e-4},
      [OT_POLICY_MIS] = {.low = 0.5, .high = 2},
  };
  ot_policy_loss loss = defaults[objective];
  loss.objective = objective;
  return loss;
}

// PPO's objective min(r A, clip(r) A) has no gradient where it is clipped.
static bool is_clipped(const ot_policy_loss *loss, double r, double A) {
  return (A > 0 && r > 1 + loss->high) || (A < 0 && r < 1 - loss->low);
}

static double sequence_log_ratio(const ot_policy_batch *batch, int64_t i) {
  double sum = 0;
  for (int64_t t = batch->first[i]; t < batch->first[i + 1]; t++) {
    sum += batch->logprob[t] - batch->behaviour[t];
  }
  return sum;
}

// `s`: of the sequence, with GSPO.
static double weigh(const ot_policy_loss *loss, double r, double s, double A) {
  switch (loss->objective) {
    case OT_POLICY_REINFORCE:
      return A;
    case OT_POLICY_TIS:
    case OT_POLICY_CISPO:
      return fmin(r, loss->cap) * A;
    case OT_POLICY_GRPO:
      return is_clipped(loss, r, A) ? 0 : r * A;
    case OT_POLICY_GSPO:
      return is_clipped(loss, s, A) ? 0 : s * A;
    case OT_POLICY_MIS:
      return r < loss->low || r > loss->high ? 0 : r * A;
    case OT_POLICY_OBJECTIVES:
      break;
  }
  OT_UNREACHABLE();
}

static double divisor(const ot_policy_loss *loss, const ot_policy_batch *batch) {
  // GSPO averages over the tokens of a sequence first, and then over sequences.
  const bool tokens = loss->average == OT_POLICY_TOKENS && loss->objective != OT_POLICY_GSPO;
  const int64_t n = tokens ? batch->first[batch->sequences] : batch->sequences;
  return n > 0 ? (double)n : 1;
}

void ot_policy_weights(const ot_policy_loss *loss, const ot_policy_batch *batch, double *weights) {
  const double scale = 1 / divisor(loss, batch);
  for (int64_t i = 0; i < batch->sequences; i++) {
    const int64_t from = batch->first[i], to = batch->first[i + 1];
    const bool whole = loss->objective == OT_POLICY_GSPO;
    const double s = whole ? exp(sequence_log_ratio(batch, i) / (double)(to - from)) : 1;
    const double share = whole ? scale / (double)(to - from) : scale;
    for (int64_t t = from; t < to; t++) {
      const double r = exp(batch->logprob[t] - batch->behaviour[t]);
      weights[t] = share * weigh(loss, r, s, batch->advantage[i]);
    }
  }
}

static bool is_bounded(const ot_policy_loss *loss, double r, double s, double A) {
  switch (loss->objective) {
    case OT_POLICY_REINFORCE:
      return false;
    case OT_POLICY_TIS:
    case OT_POLICY_CISPO:
      return r > loss->cap;
    case OT_POLICY_GRPO:
      return is_clipped(loss, r, A);
    case OT_POLICY_GSPO:
      return is_clipped(loss, s, A);
    case OT_POLICY_MIS:
      return r < loss->low || r > loss->high;
    case OT_POLICY_OBJECTIVES:
      break;
  }
  OT_UNREACHABLE();
}

void ot_policy_measure(const ot_policy_loss *loss, const ot_policy_batch *batch,
                       ot_policy_figures *out) {
  double r1 = 0, r2 = 0, kl = 0, distance = 0, bounded = 0, s1 = 0, s2 = 0;
  const double n = (double)batch->first[batch->sequences], m = (double)batch->sequences;
  for (int64_t i = 0; i < batch->sequences; i++) {
    const int64_t from = batch->first[i], to = batch->first[i + 1];
    const double log_s = sequence_log_ratio(batch, i), s = exp(log_s);
    const double mean = exp(log_s / (double)(to - from));
    s1 += s;
    s2 += s * s;
    for (int64_t t = from; t < to; t++) {
      const double log_r = batch->logprob[t] - batch->behaviour[t], r = exp(log_r);
      r1 += r;
      r2 += r * r;
      kl += expm1(log_r) - log_r;
      distance += fabs(log_r);
      bounded += is_bounded(loss, r, mean, batch->advantage[i]);
    }
  }
  *out = (ot_policy_figures){.ess = r1 * r1 / (n * r2),
                             .sequence_ess = s1 * s1 / (m * s2),
                             .kl = kl / n,
                             .log_ratio = distance / n,
                             .zero_share = bounded / n};
}

void ot_policy_advantages(const double *rewards, int64_t count, double *advantages) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += rewards[i];
  for (int64_t i = 0; i < count; i++) {
    advantages[i] = count > 1 ? rewards[i] - (sum - rewards[i]) / (double)(count - 1) : 0;
  }
}
