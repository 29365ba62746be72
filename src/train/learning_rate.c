// SPDX-License-Identifier: Apache-2.0
// Warm-up and decay. WSD: Hu et al. 2024, arXiv 2404.06395.
#include "train/learning_rate.h"

#include "base/math.h"

static double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

// Fraction of the decay that is done, 0 before it starts.
static double descent(const ot_run_learning_rate *settings, const ot_progress *p) {
  const double rest = p->total - p->warmup;
  if (settings->decay == OT_DECAY_WSD) {
    const double length = p->decay > 0 ? p->decay : 0.1 * p->total;
    return length > 0 ? clamp01((p->done - (p->total - length)) / length) : 0;
  }
  const double length = p->decay > 0 ? p->decay : rest;
  return length > 0 ? clamp01((p->done - p->warmup) / length) : 0;
}

double ot_learning_rate(const ot_run_learning_rate *settings, double peak, const ot_progress *p) {
  const double pi = 3.14159265358979323846;
  // The first step does not use a rate of zero: step i of w uses (i+1)/w.
  if (p->done < p->warmup) {
    const double first = p->warmup > 0 ? 1 / p->warmup : 1;
    return peak * clamp01(p->done / p->warmup + (first < 1 ? first : 1));
  }
  const double x = descent(settings, p);
  switch (settings->decay) {
    case OT_DECAY_CONSTANT:
      return peak;
    case OT_DECAY_LINEAR:
    case OT_DECAY_WSD:
      return peak + (settings->min - peak) * x;
    case OT_DECAY_COSINE:
      return settings->min + 0.5 * (peak - settings->min) * (1 + ot_cos(pi * x));
  }
  OT_UNREACHABLE();
}

ot_progress ot_run_progress(const ot_run *run, int64_t step) {
  const ot_run_learning_rate *const rate = &run->learning_rate;
  if (run->tokens == 0) {
    return (ot_progress){.done = (double)step,
                         .total = (double)run->steps,
                         .warmup = (double)rate->warmup_steps,
                         .decay = (double)rate->decay_steps};
  }
  const int64_t total_steps = ot_run_total_steps(run);
  const int64_t total = ot_run_tokens_after(run, total_steps);
  const int64_t before = total_steps > rate->decay_steps ? total_steps - rate->decay_steps : 0;
  return (ot_progress){
      .done = (double)ot_run_tokens_after(run, step),
      .total = (double)total,
      .warmup = (double)ot_run_tokens_after(run, rate->warmup_steps),
      .decay = rate->decay_steps > 0 ? (double)(total - ot_run_tokens_after(run, before)) : 0,
  };
}
