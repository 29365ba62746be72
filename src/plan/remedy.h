// SPDX-License-Identifier: Apache-2.0
// What to change in a job of which no plan fits: each change by itself, tried by searching again.
#pragma once

#include "plan/search.h"

enum { OT_REMEDIES = 12 };

typedef struct ot_remedies {
  int num;
  const char *text[OT_REMEDIES];  // [num] what then fits, smallest change first
} ot_remedies;

// Frees one degree that the job fixes, then adds devices (twice as many, and again, up to 4096
// times). Lives in `arena`. Cost: a search for each.
ot_status ot_remedies_build(const ot_job *job, ot_arena *arena, ot_remedies *out);
