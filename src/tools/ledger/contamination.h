// SPDX-License-Identifier: Apache-2.0
// How much of the held-out text is in the training data, by n-grams of tokens; and what a run would
// take at the target. Both are asked for when a verdict needs them.
#pragma once

#include "ledger/analysis.h"

typedef struct ot_ledger_contamination {
  int length;      // tokens of an n-gram: 13, and 50 for vocabularies below 4,096
  int64_t ngrams;  // of the validation tokens
  double share;    // of them that occur in the training data
} ot_ledger_contamination;

// Reads all training tokens of the run of `job` once.
ot_status ot_ledger_find_contamination(const ot_ledger *ledger, const ot_ledger_job *job,
                                       ot_ledger_contamination *out);

// Plans the run of policy.planned.scale with and without `change` on its cluster, each with its
// best layout. NaN without a target.
ot_status ot_ledger_plan_target(const ot_ledger *ledger, const ot_ledger_change *change,
                                ot_ledger_target *out);
