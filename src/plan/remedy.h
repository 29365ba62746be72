// SPDX-License-Identifier: Apache-2.0
// Changes that make a job fit if no plan does: each is tried alone, by a new search.
#pragma once

#include "plan/search.h"

enum { OT_REMEDIES = 12 };

typedef struct ot_remedies {
  int num;
  const char *text[OT_REMEDIES];  // [num] the plan that fits, smallest change first
} ot_remedies;

// Frees one fixed degree of the job at a time, then doubles the devices (up to 4096 times as many).
// In `arena`. Cost: one search per change.
ot_status ot_remedies_build(const ot_job *job, ot_arena *arena, ot_remedies *out);
