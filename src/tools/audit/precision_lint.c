// SPDX-License-Identifier: Apache-2.0
// Checks settings against the number formats in which they are stored.
#include <math.h>

#include "audit/audit.h"
#include "audit/rounding.h"
#include "describe/optimizer_rules.h"

typedef struct moment_decay {
  const char *finding, *moment, *key;
  double decay;
} moment_decay;

// v <- beta2 v + (1 - beta2) g^2 rounds back to v while |g^2/v - 1| (1 - beta2) is below half an
// ulp, which is between 2^-(p+1) and 2^-p of v. For v to follow a vanishing gradient, twice that
// share must not exceed one. Likewise m.
static void check_moment(const ot_run *run, const moment_decay *d, ot_audit_report *report) {
  const ot_format *const format = ot_format_of(run->precision.moments);
  const double rate = 1 - d->decay;
  const double half = ldexp(1, -format->bits);
  if (rate >= 8 * half) return;
  ot_audit_find(
      report, d->finding,
      ot_arena_format(report->arena, "precision.moments: %s, optimizer.%s: %g", format->name,
                      d->key, d->decay),
      ot_arena_format(report->arena, "keep moments in fp32, or %s at most %.6g", d->key,
                      1 - 8 * half),
      "a step moves %s by at most %.3g of itself when the gradient vanishes, and %s rounds changes "
      "below %.3g to %.3g away: %s stays within a factor of %.3g of what it should be",
      d->moment, rate, format->name, half / 2, half, d->moment, 1 + half / rate);
}

static void check_moments_of(const ot_run *run, const ot_optimizer_rules *rules,
                             ot_audit_report *report) {
  static const char *const findings[] = {"first_moment_frozen", "second_moment_frozen"};
  static const char *const moments[] = {"m", "v"};
  for (int i = 0; i < rules->moments; i++) {
    const moment_decay decay = {findings[i], moments[i], rules->decays[i].key,
                                ot_optimizer_decay(run, rules, i)};
    check_moment(run, &decay, report);
  }
}

static void check_moments(const ot_run *run, ot_audit_report *report) {
  const ot_optimizer_rules *const others = ot_optimizer_rules_of(run, false);
  const ot_optimizer_rules *const matrices = ot_optimizer_rules_of(run, true);
  check_moments_of(run, others, report);
  if (matrices != others) check_moments_of(run, matrices, report);
}

// Share of updates lost by rounding to nearest, |update| < ulp(w) / 2, for updates of relative size
// lr (0.1 .. 1) x lr on weights ~ N(0, 0.02).
static double lost_share(const ot_format *format, double rate, double deviation) {
  enum { STEPS = 4000 };
  double lost = 0;
  for (int i = 0; i < STEPS; i++) {
    const double z = 4.0 * (i + 0.5) / STEPS;
    const double density = 2 * 0.3989422804014327 * exp(-z * z / 2) * 4.0 / STEPS;
    const double half = ot_format_ulp(format, z * deviation) / 2;
    lost += density * fmin(fmax((half / rate - 0.1) / 0.9, 0), 1);
  }
  return lost;
}

static void check_master(const ot_run *run, ot_audit_report *report) {
  const ot_format *const format = ot_format_of(run->precision.master);
  const double share = lost_share(format, run->optimizer.lr, run->model.initializer_range);
  if (format->bits >= 24 || share <= 0.05) return;
  ot_audit_find(report, "updates_lost",
                ot_arena_format(report->arena, "precision.master: %s, optimizer.lr: %g",
                                format->name, run->optimizer.lr),
                "keep master weights in fp32",
                "of updates of 0.1 to 1 times the learning rate to weights of deviation %g, %.3g "
                "%% are less than half a unit in the last place and are rounded away",
                run->model.initializer_range, 100 * share);
}

static void check_epsilon(const ot_run *run, ot_audit_report *report) {
  const ot_format *const format = ot_format_of(run->precision.moments);
  if (run->optimizer.name != OT_OPTIMIZER_ADAMW || run->optimizer.eps == 0) return;
  if (ot_format_round(format, run->optimizer.eps) != 0) return;
  ot_audit_find(report, "epsilon_is_zero",
                ot_arena_format(report->arena, "optimizer.eps: %g, precision.moments: %s",
                                run->optimizer.eps, format->name),
                "keep moments in fp32, or raise eps",
                "%g rounds to zero in %s, so that a second moment of zero is divided by",
                run->optimizer.eps, format->name);
}

void ot_precision_lint(const ot_run *run, ot_audit_report *report) {
  check_moments(run, report);
  check_master(run, report);
  check_epsilon(run, report);
}
