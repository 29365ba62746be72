// SPDX-License-Identifier: Apache-2.0
// Which degrees of parallelism go with a model, a sequence and a batch.
#pragma once

#include "describe/run.h"

// The parallel section against the rest of the run, as far as it does not depend on the number of
// ranks (ot_run_check_ranks). OT_USAGE naming key, value and the nearest degrees that fit all
// rules; OT_ENVIRONMENT for what is not there yet.
ot_status ot_parallel_check(const ot_run *run);
