// SPDX-License-Identifier: Apache-2.0
// One plan on fewer and more devices: same degrees and global batch, only data parallelism changes.
// Shows where more devices stop paying off: compute shrinks in proportion, exposed communication
// does not.
#pragma once

#include "estimate/estimate.h"

enum { OT_SCALING_POINTS = 24 };

typedef struct ot_scaling {
  int num;
  int devices[OT_SCALING_POINTS];           // [num] increasing, each twice the one before
  ot_estimate estimate[OT_SCALING_POINTS];  // [num]
} ot_scaling;

// Halves and doubles dp of `candidate` while micro-batches stay whole. If there is only one
// micro-batch, it shrinks; if an interleaved schedule has too few, 1f1b is used. The cluster grows
// as needed. Fewer devices whose step has very many passes of chunks, each of which takes memory,
// are left out. `scratch` is the memory of the estimators. Cost: one estimator per point.
ot_status ot_scaling_build(const ot_job *job, const ot_candidate *candidate, ot_arena_pool *scratch,
                           ot_scaling *out);
