// SPDX-License-Identifier: Apache-2.0
// The audits of a model as it stands, which take no step: one call for the command and for runs, so
// that both ask the same.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

typedef struct ot_model_audit_request {
  ot_trainer *trainer;
  ot_audit_check check;   // causality, precision or drift
  int64_t planned_ranks;  // precision: over which gradients will be summed; 0: those of the run
  uint64_t seed;
} ot_model_audit_request;

// Of precision and drift the report is the leader's, and that of others is empty. Collective over
// the world. Blocks.
ot_status ot_audit_model(const ot_model_audit_request *request, ot_arena *arena,
                         ot_audit_report *report);
