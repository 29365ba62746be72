// SPDX-License-Identifier: Apache-2.0
// The step of a candidate as a Chrome trace, for engines whose schedules are not built: one bar an
// action of the pipeline, with pid, tid and categories as in the traces of schedules, of the first
// rank of each stage.
#pragma once

#include "plan/estimate.h"

// Plays `candidate` of `job` and writes it to `path`. OT_USAGE as ot_estimator_build.
ot_status ot_played_trace_write(const ot_job *job, const ot_candidate *candidate, const char *path);
