// SPDX-License-Identifier: Apache-2.0
// Lower bounds for any schedule of a candidate, at a fraction of the cost of an estimate: step_s is
// at least the compute of the busiest stage, peak at least the states and one micro-batch. The
// search discards candidates by them.
#pragma once

#include "estimate/estimate.h"

ot_status ot_estimate_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_estimate_bound *out);
