// SPDX-License-Identifier: Apache-2.0
// Whether a job can be planned, and whether a candidate can run it.
#pragma once

#include "describe/job.h"

// OT_USAGE for values that are missing, out of range, or incompatible.
ot_status ot_job_check(const ot_job *job);

// Whether `candidate` can run `job`: degrees against the model, sequence, batch and devices.
// OT_USAGE names what does not fit and the nearest valid value.
ot_status ot_candidate_check(const ot_job *job, const ot_candidate *candidate);
