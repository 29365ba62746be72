// SPDX-License-Identifier: Apache-2.0
// The smallest change of a run that needs too much memory, found by planning it again.
#pragma once

#include "runtime/gpu_check.h"
#include "schedule/planned_run.h"

// A rank that lacks memory; it need not be planned yet.
typedef struct ot_memory_advice {
  ot_planned_run planned;
  int rank;
} ot_memory_advice;

// Finds, in this order, a smaller micro-batch, recomputation, ZeRO, and some together. Keeps
// `advice`.
ot_memory_advisor ot_memory_advisor_of(ot_memory_advice *advice);
