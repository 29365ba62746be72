// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank of a stage. Of this program exactly what the arena of its schedule takes; of
// other software what its engine says. Private to plan/.
#pragma once

#include "plan/estimator.h"

// Of this program.
void ot_memory_own_build(const ot_play_request *request, int stage, ot_arena *arena,
                         ot_memory_estimate *out);

// Of other software.
void ot_memory_other_build(const ot_play_request *request, int stage, ot_memory_estimate *out);
