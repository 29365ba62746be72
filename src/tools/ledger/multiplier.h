// SPDX-License-Identifier: Apache-2.0
// The compute multiplier m of a change: it reaches the loss of the baseline with 1/m of the
// compute. All in ln m and ln C. A difference of losses becomes a difference in ln C by the local
// curve of the baseline, so that no asymptote is fitted or extrapolated. Pure.
#pragma once

#include "ledger/student.h"

enum { OT_LEDGER_SCALES = 8, OT_LEDGER_BUDGETS = 4 };

// The baseline on a ladder: losses in nats, [..][seed]; NaN where there is no run.
typedef struct ot_baseline {
  int scales, seeds;
  bool along_ladder;  // slopes between scales; else between the budgets of each scale
  int budgets;        // besides 1
  double factor[OT_LEDGER_BUDGETS];
  double ln_compute[OT_LEDGER_SCALES];  // at budget 1
  double loss[OT_LEDGER_SCALES][OT_LEDGER_SEEDS];
  double budget_loss[OT_LEDGER_SCALES][OT_LEDGER_BUDGETS][OT_LEDGER_SEEDS];
  // Standard deviation of the difference of a pair that rounding alone tells apart. No standard
  // error is taken to be smaller than it says: pairs that scatter less do so by chance or, where
  // both arms have the same runs, because they are no pairs.
  double rounding[OT_LEDGER_SCALES];
} ot_baseline;

// A changed arm on the same seeds, and its compute.
typedef struct ot_changed {
  double ln_compute[OT_LEDGER_SCALES];
  double loss[OT_LEDGER_SCALES][OT_LEDGER_SEEDS];
} ot_changed;

// -dL/dlnC of the baseline at a scale: the derivative at budget 1 of the parabola through the means
// of all budgets (along_ladder: of all scales), of differences within a seed. NaN: not enough runs.
double ot_baseline_slope(const ot_baseline *base, int scale, int left_out);

// ln m at a scale: the ln C by which the baseline's parabola reaches the mean difference, minus the
// additional compute. (Its tangent alone is too low by a share of ln m, 3 % at 1.1 on the curve of
// tests/ledger/acceptance.sh, more than the interval of 12 pairs.) Above 0.2 a monotone cubic is
// inverted, straight beyond its ends.
double ot_ln_multiplier(const ot_baseline *base, const ot_changed *changed, int scale,
                        int left_out);

// The loss at ln C = `x` above that of budget 1, relative to it: the inverse of ot_ln_multiplier.
double ot_baseline_loss_at(const ot_baseline *base, int scale, double x);

// Raises the standard error of a mean of ln m over the scales to that of rounding alone; returns
// whether it was smaller.
bool ot_baseline_widen(const ot_baseline *base, ot_measured *mean);

// The multiplier of a change against its baseline.
typedef struct ot_multiplier {
  int scales, pairs;
  ot_measured ln_m[OT_LEDGER_SCALES];
  ot_measured slope[OT_LEDGER_SCALES];
  double rho[OT_LEDGER_SCALES];      // correlation of both arms over seeds
  double pair_sd[OT_LEDGER_SCALES];  // of a pair's difference, in ln C
  ot_measured mean;                  // over scales, equal weights
  ot_measured trend;                 // d ln m / d ln C; NaN with one scale
  ot_measured at_target;             // mean + trend (ln target - mean ln C); NaN without a target
  bool by_rounding;                  // the interval of the mean is that of rounding alone
} ot_multiplier;

// `ln_target`: NaN: no target.
void ot_multiplier_estimate(const ot_baseline *base, const ot_changed *changed, double ln_target,
                            ot_multiplier *out);

// A stack of parts: ln m of the whole, the gap to the sum of its parts alone, and of each part
// alone and its share in the whole (whole without it subtracted).
typedef struct ot_stack {
  int parts, seeds;
  const ot_changed *whole, *alone, *without;  // alone, without [parts]
} ot_stack;

enum { OT_LEDGER_PARTS = 10 };

typedef struct ot_stack_result {
  ot_measured whole, sum, gap;
  ot_measured alone[OT_LEDGER_PARTS], share[OT_LEDGER_PARTS];
} ot_stack_result;

void ot_stack_estimate(const ot_baseline *base, const ot_stack *stack, ot_stack_result *out);

// ---- two-level designs ----

// A design of 2^(factors - p) runs of `factors` (2 to 8) changes, at least resolution IV: bit i of
// run[r] says that change i is on. Run 0 is the baseline.
typedef struct ot_factorial {
  int factors, runs, resolution;  // resolution 0: full
  unsigned run[16];
} ot_factorial;

// False for a number of factors without a design.
bool ot_factorial_design(int factors, ot_factorial *out);

// Mean of `value` [runs] with the changes of `mask` on or off in the even way, minus that in the
// odd way: the effect of one change (one bit), or twice the usual half of an interaction (two
// bits): value(ab) - value(a) - value(b) + value(0) averaged over the rest.
double ot_factorial_effect(const ot_factorial *design, unsigned mask, const double *value);

// The interactions of two changes that `mask` cannot be told apart from: bit j*8+i for i < j.
unsigned long long ot_factorial_aliases(const ot_factorial *design, unsigned mask);
