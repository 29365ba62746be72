// SPDX-License-Identifier: Apache-2.0
// Memory of frameworks: parts of framework_described.c. Private to plan/.
#pragma once

#include "plan/framework.h"

// As count_memory and bound_slots of framework.h.
void ot_described_memory(const ot_replay_request *request, ot_arena *arena,
                         ot_memory_estimate *out);
void ot_described_bound_slots(const ot_estimator *estimator, const ot_prices *prices, int kind,
                              int64_t *slot_bytes, int64_t *scratch_bytes);

// The most activations that each stage keeps at once.
//   peak  [stages] bytes, zero before
void ot_described_peaks(const ot_replay_request *request, ot_arena *arena, double *peak);

// Ranks that hold the same experts: those that their gradients are summed over.
ot_group_shape ot_described_expert_replicas(const ot_candidate *candidate);
