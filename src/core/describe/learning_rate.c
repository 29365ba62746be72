// SPDX-License-Identifier: Apache-2.0
// Warm-up and decay. WSD: Hu et al. 2024, arXiv 2404.06395.
#include "describe/learning_rate.h"

#include "base/math.h"

typedef struct progress {
  double done, end;  // before and after the step
  double total;      // of the whole run
  double warmup;
  double decay;  // 0: not given
} progress;

static double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

// Fraction of the decay that is done, 0 before it starts.
static double descent(ot_decay decay, const progress *p) {
  if (decay == OT_DECAY_WSD) {
    const double length = p->decay > 0 ? p->decay : 0.1 * p->total;
    return length > 0 ? clamp01((p->done - (p->total - length)) / length) : 0;
  }
  const double length = p->decay > 0 ? p->decay : p->total - p->warmup;
  return length > 0 ? clamp01((p->done - p->warmup) / length) : 0;
}

static double tokens_after(const ot_run *run, int64_t steps) {
  return (double)ot_run_tokens_after(run, steps);
}

// Tokens of the decay_steps in which the rate falls.
static double decay_tokens(const ot_run *run) {
  const ot_run_learning_rate *const rate = &run->learning_rate;
  const int64_t total = ot_run_total_steps(run);
  const bool last = rate->decay == OT_DECAY_WSD;
  const int64_t first = last ? total - rate->decay_steps : rate->warmup_steps;
  const int64_t from = first > 0 ? first : 0;
  return tokens_after(run, last ? total : from + rate->decay_steps) - tokens_after(run, from);
}

static progress progress_at(const ot_run *run, int64_t step) {
  const ot_run_learning_rate *const rate = &run->learning_rate;
  if (run->tokens == 0 || run->batch.num_ramp == 0) {
    return (progress){.done = (double)step,
                      .end = (double)(step + 1),
                      .total = (double)ot_run_total_steps(run),
                      .warmup = (double)rate->warmup_steps,
                      .decay = (double)rate->decay_steps};
  }
  return (progress){.done = tokens_after(run, step),
                    .end = tokens_after(run, step + 1),
                    .total = tokens_after(run, ot_run_total_steps(run)),
                    .warmup = tokens_after(run, rate->warmup_steps),
                    .decay = rate->decay_steps > 0 ? decay_tokens(run) : 0};
}

double ot_learning_rate_at(const ot_run *run, int64_t step) {
  const double pi = 3.14159265358979323846;
  const ot_run_learning_rate *const rate = &run->learning_rate;
  const double peak = run->optimizer.lr;
  const progress p = progress_at(run, step);
  if (p.done < p.warmup) return peak * (p.end / p.warmup);
  const double x = descent(rate->decay, &p);
  if (x <= 0) return peak;  // the cosine below would round
  switch (rate->decay) {
    case OT_DECAY_CONSTANT:
      return peak;
    case OT_DECAY_LINEAR:
    case OT_DECAY_WSD:
      return peak + (rate->min - peak) * x;
    case OT_DECAY_COSINE:
      return rate->min + 0.5 * (peak - rate->min) * (1 + ot_cos(pi * x));
  }
  OT_UNREACHABLE();
}
