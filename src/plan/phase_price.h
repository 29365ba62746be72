// SPDX-License-Identifier: Apache-2.0
// What one segment takes on a cluster, and where that time goes. Private to plan/.
#pragma once

#include "plan/estimator.h"
#include "schedule/block_phases.h"

// Plays `segment` as the simulator plays an entry: kernels one after the other, collectives of tp
// and cp beside them until one is waited for. Where the host runs ahead, the segment takes as long
// as the device or the host, whichever is longer. Of other software than this program, collectives
// run beside kernels as its engine says. A null segment takes no time.
ot_status ot_phase_price_build(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_segment *segment, ot_phase_price *out);

// Adds `times` x `price` to `sum`.
void ot_phase_price_add(ot_phase_price *sum, const ot_phase_price *price, double times);

// Fills what sums, gathers and the optimizer take of one kind of block, and around them (tie,
// begin, clip), from the segments of this program or from the bytes of the recipe.
ot_status ot_sum_prices_build(const ot_estimator *estimator, const ot_step_phases *phases,
                              ot_arena *scratch, ot_prices *prices);

// Adds sums and gather, and sets the update, of a bucket of to->elements, of which
// to->expert_elements are experts; of other software.
ot_status ot_bucket_price_build(const ot_estimator *estimator, const ot_candidate *candidate,
                                ot_block_price *to);
