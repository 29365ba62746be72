// SPDX-License-Identifier: Apache-2.0
// `orthant audit rl`: of a run that learns from rewards, which has no training data and whose audit
// is a run of its own (rl/rl_audit.h).
#pragma once

#include "cli/options.h"
#include "describe/run.h"

// Plays `updates` updates and prints what they show; OT_FINDINGS after a finding.
ot_status ot_audit_rl(const ot_options *options, const ot_run *run, int64_t updates);
