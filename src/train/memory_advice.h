// SPDX-License-Identifier: Apache-2.0
// The smallest change of a run that needs too much memory, found by planning it again.
#pragma once

#include "runtime/gpu_check.h"
#include "train/planned_rank.h"

// Finds, in this order, a smaller micro-batch, recomputation, ZeRO, and some together, for a rank
// that need not be planned yet. Keeps `rank`.
ot_memory_advisor ot_memory_advisor_of(ot_planned_rank *rank);
