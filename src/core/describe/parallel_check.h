// SPDX-License-Identifier: Apache-2.0
// Checks parallel degrees against a model, a sequence length and a batch.
#pragma once

#include "describe/run.h"

// Checks the parallel section against the rest of the run, except for the number of ranks
// (ot_run_check_ranks). OT_USAGE naming key, value and the nearest degrees that satisfy all rules;
// OT_ENVIRONMENT for unsupported combinations.
ot_status ot_parallel_check(const ot_run *run);
