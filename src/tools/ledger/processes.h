// SPDX-License-Identifier: Apache-2.0
// Runs of a ledger as processes of their own: `train` and `audit` of this program, or of the one
// that a change names. Their output goes to a file next to the run directory.
#pragma once

#include "ledger/ledger.h"

// Runs what the record does not have of `arms`, `ledger->jobs` at a time, and records each as it
// ends. A run that was stopped is continued. OT_STOPPED after a signal, once every process has
// saved its state.
ot_status ot_ledger_run_arms(ot_ledger *ledger, const ot_ledger_arms *arms);

// Runs a job that is not recorded and returns its result; the loss is NaN if it diverged. Its
// directory is removed before it, and after a success.
ot_status ot_ledger_run_apart(const ot_ledger *ledger, const ot_ledger_job *job,
                              ot_ledger_result *out);

// Runs a command, `words` [..., null], in `folder` (null: this one), its output to the files `out`
// and `errors`. OT_STOPPED after a signal, once it has ended.
ot_status ot_ledger_run_command(const char *const *words, const char *folder, const char *out,
                                const char *errors, int *code);

// An audit of a run at its initial weights.
typedef struct ot_ledger_audit_request {
  const char *audit;   // "all", "causality", "precision"
  const char *option;  // "--trials", "--planned-ranks"; null: none
  int64_t value;       // of the option
} ot_ledger_audit_request;

// Audits the run of `arm` and records the line "audit", unless the record has it. *finding: what it
// found; null: nothing.
ot_status ot_ledger_audit_arm(ot_ledger *ledger, const ot_ledger_arm *arm,
                              const ot_ledger_audit_request *request, const char **finding);
