// SPDX-License-Identifier: Apache-2.0
// The parts of ot_framework_described; each answers the request of framework.h of the same name.
// Private to framework_described.c and described_*.c.
#pragma once

#include "plan/framework.h"

ot_status ot_described_recompute(const ot_estimator *estimator, const ot_prices *prices,
                                 const ot_block_phases *from, ot_phase_price *out);
ot_status ot_described_experts(const ot_estimator *estimator, const ot_prices *prices, int kind,
                               ot_block_price *to);
ot_status ot_described_sums(const ot_estimator *estimator, const ot_step_phases *phases,
                            ot_arena *scratch, ot_prices *prices);
ot_status ot_described_bound_sums(const ot_estimator *estimator, const ot_candidate *candidate,
                                  double elements, ot_shard_bound *out);
void ot_described_memory(const ot_play_request *request, ot_arena *arena, ot_memory_estimate *out);
void ot_described_bound_slots(const ot_estimator *estimator, const ot_prices *prices, int kind,
                              int64_t *slot_bytes, int64_t *scratch_bytes);
double ot_described_bound_shards(const ot_estimator *estimator, const ot_candidate *candidate,
                                 bool experts);

// The most activations that each stage keeps at once.
//   peak  [stages] bytes, zero before
void ot_described_peaks(const ot_play_request *request, ot_arena *arena, double *peak);

// Elements of the routed experts that a rank holds of blocks of kind `kind`; 0 when they have none.
double ot_described_expert_elements(const ot_estimator *estimator, const ot_candidate *candidate,
                                    int kind);

// Takes from the elements of `to`, which has all experts, those that other ranks hold.
void ot_described_expert_share(const ot_estimator *estimator, const ot_candidate *candidate,
                               int kind, ot_block_price *to);

// Ranks that hold the same experts: those that their gradients are summed over.
ot_group_shape ot_described_expert_replicas(const ot_candidate *candidate);
