// SPDX-License-Identifier: Apache-2.0
// The part of each pool of a mixed cluster in a plan, an axis of which crosses the pools
// (estimate/crossing.h), and the devices of a cluster, as text in `arena`.
#pragma once

#include "base/arena.h"
#include "estimate/result.h"

// "pp crosses pools: h100 22 layers in 4 stages, memory 83% of 85.5 GB; ...": what each pool does;
// null: nothing crosses.
const char *ot_explain_crossing(const ot_job *job, const ot_estimate *estimate, ot_arena *arena);

// The same, and how the work is divided.
const char *ot_explain_division(const ot_job *job, const ot_estimate *estimate, ot_arena *arena);

// "85.5 GB", or of a mixed cluster "64 h100 of 85.5 GB and 64 a100-80g of 85.9 GB".
const char *ot_explain_devices(const ot_job *job, ot_arena *arena);
