// SPDX-License-Identifier: Apache-2.0
// One plan on fewer and on more devices: the same degrees but for data parallelism, which takes
// what devices there are, with the same global batch. Shows where more devices stop paying: compute
// gets less in proportion, waiting does not.
#pragma once

#include "plan/estimate.h"

enum { OT_SCALING_POINTS = 24 };

typedef struct ot_scaling {
  int num;
  int devices[OT_SCALING_POINTS];           // [num] increasing, each twice the one before
  ot_estimate estimate[OT_SCALING_POINTS];  // [num]
} ot_scaling;

// Halves and doubles dp of `candidate` as long as micro-batches come out whole. Micro-batches get
// smaller where there is but one of them; where an interleaved order has too few, 1f1b is priced.
// The cluster is made as large as needed. Estimates live in `arena`. Cost: an estimator for each.
ot_status ot_scaling_build(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                           ot_scaling *out);
