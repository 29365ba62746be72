// SPDX-License-Identifier: Apache-2.0
// Bytes of one rank of a stage. Of this program exactly what the arena of its schedule takes; of
// other software what its engine says. Private to plan/.
#pragma once

#include "plan/estimator.h"

// Of this program.
void ot_memory_own_build(const ot_play_request *request, int stage, ot_arena *arena,
                         ot_memory_estimate *out);

// Of other software: what a micro-batch leaves in one block of `kind` for its backward.
double ot_memory_kept(const ot_estimator *estimator, const ot_prices *prices, int kind);

// What it leaves in a layer beyond what the backward of a fused layer reads: scores, masks, copies.
double ot_memory_kept_more(const ot_estimator *estimator, const ot_prices *prices, int kind);

// Of other software: the most activations that each stage keeps at once, and with that figure the
// rest.
//   peak  [stages] bytes, zero before
void ot_memory_other_peaks(const ot_play_request *request, ot_arena *arena, double *peak);
void ot_memory_other_build(const ot_play_request *request, int stage, double kept,
                           ot_memory_estimate *out);
