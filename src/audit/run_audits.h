// SPDX-License-Identifier: Apache-2.0
// The audits that run->audit.checks asks for, as a run calls them between its steps: what they find
// is what the command finds, and ends the run.
#pragma once

#include "train/loop.h"

typedef struct ot_run_audits ot_run_audits;

// Keeps `run` and `team` (null: one rank) until destroy.
ot_status ot_run_audits_create(const ot_run *run, ot_team *team, ot_run_audits **out);
// After the run has ended.
void ot_run_audits_destroy(ot_run_audits **audits);

// For ot_loop_request.
const ot_loop_check *ot_run_audits_checks(const ot_run_audits *audits, int *count);
