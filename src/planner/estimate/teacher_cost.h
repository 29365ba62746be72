// SPDX-License-Identifier: Apache-2.0
// The cost that the live teacher of a job adds to its estimates. Private to the planner.
#pragma once

#include "estimate/estimator.h"

// The price of the teacher for the micro-batches of `candidate`; zeros: the job has none.
ot_status ot_teacher_cost_find(ot_estimator *estimator, const ot_candidate *candidate,
                               ot_teacher_price *out);

// Adds what the step waits for it to the step of `out`.
void ot_teacher_cost_add(const ot_job *job, const ot_teacher_price *price, ot_estimate *out);

// Adds it to lower bounds of `candidate`, which remain so.
ot_status ot_teacher_cost_bound(ot_estimator *estimator, const ot_candidate *candidate,
                                ot_estimate_bound *out);
