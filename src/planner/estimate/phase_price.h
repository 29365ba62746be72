// SPDX-License-Identifier: Apache-2.0
// Time of one segment on a cluster, by term. Private to the planner.
#pragma once

#include "estimate/estimator.h"
#include "schedule/segment.h"

// Replays `segment` as the simulator replays an entry: kernels in order, collectives of tp and cp
// concurrently until one is awaited. If the host runs ahead, the segment takes the longer of device
// and host time. The engine states what overlaps with kernels. A null segment takes no time.
ot_status ot_phase_price_build(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_segment *segment, ot_phase_price *out);

// Adds `times` x `price` to `sum`.
void ot_phase_price_add(ot_phase_price *sum, const ot_phase_price *price, double times);
