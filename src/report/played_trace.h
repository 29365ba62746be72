// SPDX-License-Identifier: Apache-2.0
// The step of a candidate as a Chrome trace, for engines whose schedules are not built: one bar an
// action of the pipeline, with pid, tid and categories as in the traces of schedules, of the first
// rank of each stage.
#pragma once

#include "plan/estimate.h"

// Plays `candidate` of the estimator's job and writes it to `path`.
ot_status ot_played_trace_write(ot_estimator *estimator, const ot_candidate *candidate,
                                const char *path);
