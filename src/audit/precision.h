// SPDX-License-Identifier: Apache-2.0
// `audit precision`: whether the planned formats bend the sums that training is made of. Gradients
// of some micro-batches of the run's own data are taken as what ranks contribute, drawn out to the
// planned number of ranks and micro-batches, and added up as planned, in the planned formats,
// beside the exact sum: a bias stands out from rounding by its t. What needs no data is read off
// the settings: moments that cannot move, updates that are rounded away, an epsilon that is zero.
//
// Gradients at another moment of training have another share of signal: the verdict holds for the
// weights that were looked at.
#pragma once

#include "audit/audit_report.h"
#include "audit/contributions.h"
#include "audit/rounding.h"
#include "train/trainer.h"

// Adds a finding for each setting whose format cannot do what is asked of it, whatever the data.
void ot_precision_lint(const ot_run *run, ot_arena *arena, ot_audit_report *report);

typedef struct ot_precision_request {
  ot_trainer *trainer;  // whose weights and settings are audited; takes no step
  ot_team *team;        // null: one rank
  int64_t ranks;        // over which gradients are planned to be summed, >= 1
  uint64_t seed;
} ot_precision_request;

// The leader's report; the others' is empty. Collective over the world. Blocks.
ot_status ot_audit_precision(const ot_precision_request *request, ot_arena *arena,
                             ot_audit_report *report);
