// SPDX-License-Identifier: Apache-2.0
// From recorded runs to looks and verdicts. Pairs are checked: both arms have read the same tokens
// with the same seed and are measured on the same tokens.
#pragma once

#include "ledger/ledger.h"

// The finished runs of the baseline for `pairs` pairs. OT_USAGE naming the first that is missing.
ot_status ot_ledger_gather_base(const ot_ledger *ledger, int pairs, ot_baseline *out);

// The standard deviation of the difference of a pair that rounding alone tells apart, at a scale:
// of the newest calibration of this base, but at least that of a `loss` of float32 weights.
double ot_ledger_find_rounding(const ot_ledger *ledger, int scale, double loss);

// The arms of a change.
typedef struct ot_ledger_arm_facts {
  ot_changed arm;
  int diverged;          // runs
  int pairs, same_bits;  // of all scales; of these, with the same weights at the end
  int other_builds;      // pairs whose arms were run by different builds or machines
  double seconds_ratio;  // mean over scales of ln(seconds of the change / of the baseline)
  double flops;          // of all its runs and those of the baseline
  int spikes;
} ot_ledger_arm_facts;

// The finished runs of `changes` together, paired with the baseline's. OT_FINDINGS if a pair is not
// exact.
ot_status ot_ledger_gather(const ot_ledger *ledger, const ot_ledger_change *const *changes,
                           int num_changes, int pairs, ot_ledger_arm_facts *out);

// A change at a look.
typedef struct ot_ledger_look {
  const char *change;
  int look, pairs;
  double level;  // one-sided p that is a claim
  ot_multiplier m;
  double ln_quality;  // at equal tokens: without the additional compute
  double ln_seconds;  // by measured seconds
  double shrunk;      // ln m under the prior of the ledger
  ot_ledger_arm_facts facts;
  ot_ledger_verdict verdict;
  const char *why;  // a sentence
} ot_ledger_look;

// Analyses the next look of a change; writes nothing.
ot_status ot_ledger_analyse(const ot_ledger *ledger, const ot_ledger_change *change,
                            ot_ledger_look *out);

// Planned seconds of a full run of the baseline and of the change at the target; NaN without.
typedef struct ot_ledger_target {
  double base_s, change_s;
} ot_ledger_target;

// Appends the lines "look" and, if it decides or is the last, "verdict".
ot_status ot_ledger_record_look(ot_ledger *ledger, const ot_ledger_look *look,
                                const ot_ledger_target *target);

// All changes in the record: how many were proposed and accepted, and the estimates of each at its
// last analysis ([count], for the prior).
typedef struct ot_ledger_census {
  int proposed, accepted, count;
  ot_measured *estimate;  // [count]
} ot_ledger_census;
ot_ledger_census ot_ledger_count(const ot_ledger *ledger);

// The newest verdict of a change, or null.
const ot_node *ot_ledger_find_verdict(const ot_ledger *ledger, const char *change);
// Who signed it off (`ledger sign`); "": it is not signed.
const char *ot_ledger_find_signer(const ot_ledger *ledger, const char *change);
// Whether it ends the matter: better, worse, equal, vetoed, or undecided after the last look.
bool ot_ledger_is_final(const ot_ledger *ledger, const char *change);
