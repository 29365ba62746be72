// SPDX-License-Identifier: Apache-2.0
// Changes that make a job fit if no plan does: each is tried alone, by a new search.
#pragma once

#include "search/search.h"

enum { OT_REMEDIES = 14 };

// A change, and the plan that fits with it.
typedef struct ot_remedy {
  const char *freed;      // the value that is no longer fixed, "micro-batch-size"; or null
  const char *precision;  // the recipe, of fewer bytes; or null. Neither: more devices
  int devices;            // of the changed job
  ot_estimate plan;
} ot_remedy;

typedef struct ot_remedies {
  int num;
  ot_remedy change[OT_REMEDIES];  // [num] smallest change first
  const char *text[OT_REMEDIES];  // [num] the same as text
} ot_remedies;

// Frees one fixed degree of the job at a time; tries precisions of fewer bytes that the engine
// trains; then doubles the devices (up to 4096 times as many): what costs least is first.
// In `arena`; `scratch` is the memory of the searches, or null. Cost: one search per change.
ot_status ot_remedies_build(const ot_job *job, ot_arena_pool *scratch, ot_arena *arena,
                            ot_remedies *out);
