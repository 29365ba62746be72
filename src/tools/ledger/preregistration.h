// SPDX-License-Identifier: Apache-2.0
// Predictions of the loss at the next scale, recorded before its first run, and what became of
// them. The record so says how good extrapolations from its ladder are.
#pragma once

#include "ledger/ledger.h"

// Appends the line "predict" for the mean loss of an arm over `pairs` seeds at its scale, from
// those of the smaller ones; none if the scale has a run of the arm or a prediction, or if the
// record lacks what it takes:
//   a change    the baseline at this scale and at all smaller ones, the change at all smaller ones.
//               ln m on the line through the scales, with the error of the pairs to come. One
//               scale shows no trend: ln m as it is there, and as far from it as other changes
//               moved between these scales; where none did, no interval (ci of null)
//   the base    two smaller scales. The estimate is the power law through the last two; its
//               interval is all that a falling convex curve through them can reach, with their
//               error, so no law of scaling is assumed
// The job of the arm is described.
ot_status ot_ledger_predict(ot_ledger *ledger, const ot_ledger_job *job, int pairs);

// The mean loss of a change at the last scale of `base` from its losses at those before; its
// compute there is that of the baseline times exp(extra). ln m may be `move` from where its trend
// goes; infinite: no bounds (NaN). Pure.
void ot_ledger_predict_change(const ot_baseline *base, const ot_changed *changed, double extra,
                              double move, ot_measured *out);

typedef struct ot_ledger_prediction {
  const char *change, *scale;
  int pairs;
  double loss, low, high;
  double found;  // NaN: not all of these pairs have run
  bool bounded;  // has an interval
  bool held;
} ot_ledger_prediction;

// The predictions of the record, in its order; in the arena of the ledger.
int64_t ot_ledger_list_predictions(const ot_ledger *ledger, ot_ledger_prediction **out);
