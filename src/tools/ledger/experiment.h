// SPDX-License-Identifier: Apache-2.0
// Experiments: the calibration of the baseline before any change, and a change from its
// registration to the verdict that a person signs.
#pragma once

#include "ledger/analysis.h"

// The noise and the slope of the baseline, and the cost and the noise of a pair.
typedef struct ot_ledger_calibration {
  int pairs;
  ot_multiplier m;  // of a change that differs by rounding alone
  double mean[OT_LEDGER_SCALES], sd[OT_LEDGER_SCALES];  // of the loss of the baseline over seeds
  double hours, flops;                                  // of one pair at all scales
  // Standard deviations of the mean over the scales of a pair, in ln C: of runs with other seeds,
  // and of runs that rounding alone tells apart.
  double unpaired_sd, rounding_sd;
} ot_ledger_calibration;

// Runs `pairs` pairs (0: those of the first look) of the baseline and of a rounding, and appends a
// line "calibrate" for each scale.
ot_status ot_ledger_calibrate(ot_ledger *ledger, int pairs, ot_ledger_calibration *out);

// A change to register; texts are those of its file, null: not given.
typedef struct ot_ledger_proposal {
  const char *name;
  const char *class, *hypothesis, *program, *commit, *pairing, *note;
  int num_sets;
  const char *const *sets;  // [num_sets] KEY=VALUE; paths, as `program`, of the current directory
} ot_ledger_proposal;

// Writes changes/NAME.yaml if settings or a program are given, and registers the change: appends
// the line "propose". OT_USAGE if it is in the record, or no run can be made of it.
ot_status ot_ledger_propose(ot_ledger *ledger, const ot_ledger_proposal *proposal);

// Loads a registered change. OT_USAGE if its file is no longer what was registered.
ot_status ot_ledger_load_registered(const ot_ledger *ledger, const char *name,
                                    ot_ledger_change *out);

// Records that an audit found `finding` in `change`. Always OT_FINDINGS.
ot_status ot_ledger_veto(ot_ledger *ledger, const char *change, const char *finding);

// Audits, tunes and runs `changes` together for `pairs` pairs. OT_FINDINGS, after the verdict was
// recorded, if an audit has a finding.
ot_status ot_ledger_run_change(ot_ledger *ledger, const ot_ledger_change *const *changes,
                               int num_changes, int pairs);

// Runs what the next look of the registered change `name` needs; nothing after its verdict.
// OT_FINDINGS if it is vetoed.
ot_status ot_ledger_run_next(ot_ledger *ledger, const char *name);

// Analyses the next look of the registered change `name`, audits a multiplier that is too good, and
// records the result. `target` is planned for a change that is better; else NaN.
ot_status ot_ledger_judge_next(ot_ledger *ledger, const char *name, ot_ledger_look *look,
                               ot_ledger_target *target);

// Records that a person takes the verdict on the change `name` as it is.
//   by    null: the user of this process
//   note  null: none
ot_status ot_ledger_sign(ot_ledger *ledger, const char *name, const char *by, const char *note);
