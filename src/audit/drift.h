// SPDX-License-Identifier: Apache-2.0
// `audit drift`: training and inference must be the same model. On tokens of the run's own data the
// forward of training is held against
//
//   decode      the same tokens one by one against a key-value cache
//   shorter     forwards of fewer tokens, around the sizes at which kernels change their path
//   export      the model written as Hugging Face files and read back
//   neighbours  the same sequence at another place among other sequences
//   layout      the same forward on the ranks of the run, where there are several
//
// first in float32 (float64 where the run computes in it), where any difference in meaning stands
// out from rounding, then, where weights are stored narrower, in the run's own types, where only
// the size of the difference counts. Low precision alone would hide what float32 shows.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

typedef struct ot_drift_request {
  ot_trainer *trainer;  // whose weights are audited; takes no step
  ot_team *team;        // null: one rank
  int64_t tokens;       // of a sequence, at most; the run's sequences may be shorter
  // Tests: changes the model that decodes, or null.
  void (*amend)(ot_model *model);
  // Tests: changes the exported files in the folder `path`, or null.
  void (*amend_files)(const char *path);
} ot_drift_request;

// What counts as the same, in nats of a token's log-probability.
typedef struct ot_drift_bounds {
  double mean, max;
} ot_drift_bounds;
ot_drift_bounds ot_drift_bounds_of(ot_dtype compute);

// The leader's report; the others' is empty. Writes a model to the system's folder of temporary
// files and removes it. Collective over the world. Blocks.
ot_status ot_audit_drift(const ot_drift_request *request, ot_arena *arena, ot_audit_report *report);
