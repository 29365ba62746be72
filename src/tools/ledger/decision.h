// SPDX-License-Identifier: Apache-2.0
// From estimates to verdicts: looks that keep the error, levels of many candidates, margins, the
// prior of the ledger and the shrinkage by it, and what a number of pairs can find. Pure.
#pragma once

#include "ledger/multiplier.h"

enum { OT_LEDGER_LOOKS = 8 };

// Planned analyses: after pairs[i] pairs a one-sided p of at most level[i] is a claim.
typedef struct ot_looks {
  int count;
  int pairs[OT_LEDGER_LOOKS];
  double level[OT_LEDGER_LOOKS];
  double one_sided;  // the error of all looks together
} ot_looks;

// Looks whose levels are not given: at 4, 8 and 16 pairs 0.00145, 0.00689 and 0.01957 keep 0.025 (t
// tests; error spent 0.0015, 0.008, 0.025); otherwise equal shares of `one_sided`, which can only
// be too strict.
void ot_looks_set_levels(ot_looks *looks);

// The factor of every level for candidate `index` (from 0) when `accepted` were accepted before:
// alpha_j = alpha gamma_j (1 + accepted), gamma_j ~ 1/(j log^2 j) with sum 1 (LOND, Javanmard and
// Montanari 2015). At most 1; below 1 also the sum of all levels is kept.
double ot_candidate_factor(const ot_looks *looks, int index, int accepted);

typedef enum ot_ledger_verdict {
  OT_LEDGER_UNDECIDED,
  OT_LEDGER_BETTER,
  OT_LEDGER_WORSE,
  OT_LEDGER_EQUAL,     // too small to matter
  OT_LEDGER_WITHHELD,  // too good: waits for audits
  OT_LEDGER_VETOED,    // an audit has a finding
  OT_LEDGER_VERDICTS,
} ot_ledger_verdict;

extern const char *const ot_ledger_verdict_names[OT_LEDGER_VERDICTS + 1];

// Multipliers that decide.
typedef struct ot_ledger_margins {
  double practical;  // > 1: a smaller gain is not worth having
  double harmful;    // < 1: a smaller loss does not count
  double neutral;    // in ln m, of changes that claim to be neutral
  double too_good;   // a larger multiplier is a leak until audits say otherwise
} ot_ledger_margins;

typedef struct ot_decision {
  const ot_looks *looks;
  const ot_ledger_margins *margins;
  double factor;  // of the levels
  int look;       // index
  bool neutral;   // two one-sided tests within margins.neutral
} ot_decision;

// The verdict on the mean over scales.
ot_ledger_verdict ot_decide(const ot_decision *decision, const ot_measured *mean);

// The prior N(mean, sd^2) of ln m from the estimates of all candidates [count], by the method of
// moments; sd 0 with fewer than three.
typedef struct ot_ledger_prior {
  int count;
  double mean, sd;
} ot_ledger_prior;

ot_ledger_prior ot_ledger_prior_of(const ot_measured *estimates, int count);

// The estimate under the prior; unchanged with fewer than three candidates.
double ot_ledger_shrink(const ot_ledger_prior *prior, const ot_measured *estimate);

// The smallest ln m that `pairs` (> 2) pairs of standard deviation `sd` in ln C find with 80 %, at
// a two-sided 5 %: n = (1.96 + 0.84)^2 (sd / ln m)^2 + 2.
double ot_smallest_effect(double sd, int pairs);

// How far a value drawn like `moves` [count] is from 0 with probability `coverage`: t of `count`
// degrees of freedom times their root mean square. Infinite with none.
double ot_ledger_move_within(const double *moves, int count, double coverage);
