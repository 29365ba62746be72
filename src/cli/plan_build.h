// SPDX-License-Identifier: Apache-2.0
// From the job to the page: search, limits, reasons, failures of the run.
#pragma once

#include "cli/plan_request.h"
#include "report/plan_page.h"
#include "train/prediction.h"

typedef struct ot_plan_build {
  const ot_plan_request *request;
  int top;                       // plans kept
  bool variants;                 // also those with the degrees and the ZeRO of a faster one
  double critical_batch_tokens;  // as measured; 0: the law
} ot_plan_build;

// The page lives in `arena` and points into the request. OT_OK also when nothing fits: then there
// are no plans, and remedies where there are any. OT_USAGE when no split can run at all.
ot_status ot_plan_page_build(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out);

// What the run of `candidate` takes as it is simulated, schedule by schedule. Lives in `arena`.
ot_status ot_plan_predict(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                          ot_prediction *out);
