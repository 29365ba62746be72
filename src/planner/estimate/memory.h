// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank of a stage with engine orthant: exactly the arena of its schedule.
// Private to the planner.
#pragma once

#include "estimate/estimator.h"

void ot_memory_own_build(const ot_replay_request *request, int stage, ot_arena *arena,
                         ot_memory_estimate *out);
