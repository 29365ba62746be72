// SPDX-License-Identifier: Apache-2.0
// What one segment takes on a cluster, and where that time goes. Private to plan/.
#pragma once

#include "plan/estimator.h"
#include "schedule/segment.h"

// Replays `segment` as the simulator replays an entry: kernels one after the other, collectives of
// tp and cp beside them until one is waited for. Where the host runs ahead, the segment takes as
// long as the device or the host, whichever is longer. What runs concurrently with kernels is told
// by the engine. A null segment takes no time.
ot_status ot_phase_price_build(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_segment *segment, ot_phase_price *out);

// Adds `times` x `price` to `sum`.
void ot_phase_price_add(ot_phase_price *sum, const ot_phase_price *price, double times);
