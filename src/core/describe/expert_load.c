// SPDX-License-Identifier: Apache-2.0
// Loads in rows per token: for E/ep experts per rank and k experts per token the even load is k/ep,
// and the maximum min(k, E/ep).
#include "describe/expert_load.h"

#include "base/extremes.h"
#include "base/math.h"

double ot_expert_load_max(const ot_moe *moe, int ep) {
  if (moe->num_experts == 0) return 1;
  const double chosen = ot_smaller(ep, (double)moe->num_experts / (double)moe->experts_per_token);
  switch (moe->routing) {
    case OT_MOE_DROPLESS:
      return chosen;
    case OT_MOE_DROP_BY_POSITION:
    case OT_MOE_DROP_BY_SCORE:  // an even share includes the capacity factor
      return ot_smaller(chosen, ot_larger(1, moe->capacity_factor));
    case OT_MOE_EXPERT_CHOICE:
      return 1;
  }
  return 1;
}

int ot_expert_overflow_passes(const ot_moe *moe, const ot_run_parallel *p, double imbalance) {
  static const double rounding = 1e-9;  // 2.4 in buffers of 1.2 are two
  if (moe->num_experts == 0 || p->ep * p->etp == 1) return 0;
  const double load = ot_smaller(ot_larger(1, imbalance), ot_expert_load_max(moe, p->ep));
  const double more = load / p->expert_buffer - rounding - 1;
  const int whole = (int)more;
  return more <= 0 ? 0 : whole < more ? whole + 1 : whole;
}

// Mean overflow passes if the excess has the mean 1 / rate: the sum over k of P(load > k buffer).
static double passes_at(double buffer, double rate) {
  return ot_exp(rate * (1 - buffer)) / (1 - ot_exp(-rate * buffer));
}

double ot_expert_overflow_rows(double buffer, double more) {
  double low = 1e-6, high = 1e3;  // rates of many and of no passes
  while (high > low * (1 + 1e-12)) {
    const double middle = ot_sqrt(low * high);
    *(passes_at(buffer, middle) > more ? &low : &high) = middle;
  }
  return (1 - ot_exp(-low * buffer)) / low;
}
