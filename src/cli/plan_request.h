// SPDX-License-Identifier: Apache-2.0
// The words of `orthant plan` as a job, with what is assumed where nothing was given; and from the
// job to the page: search, limits, reasons, failures of the run.
#pragma once

#include "cli/options.h"
#include "files/config_file.h"
#include "import/import.h"
#include "plan/bill.h"
#include "report/plan_page.h"
#include "train/prediction.h"

typedef struct ot_plan_request {
  ot_job job;  // points into this request, which must stay where it is
  ot_bill bill;
  ot_config config;          // the run that engine orthant would train
  ot_cluster cluster;        // as large as the job
  const char *model_name;    // as the user called it
  const char *model_source;  // of a run: preset or absolute path; null: its keys
  bool has_run;      // config holds a run; not so for imported models that HF has no family for
  bool is_imported;  // --from
  ot_imported imported;
  ot_candidate own;  // what --from describes
  int num_notes;
  const char **notes;  // [num_notes]
} ot_plan_request;

// OT_USAGE and OT_ENVIRONMENT as the loaders of models and clusters, and for options that do not
// make a job. Everything lives in `arena`.
ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out);

typedef struct ot_plan_build {
  const ot_plan_request *request;
  int top;                       // plans kept
  bool variants;                 // also those with the degrees and the ZeRO of a faster one
  double critical_batch_tokens;  // as measured; 0: the law
} ot_plan_build;

// The page lives in `arena` and points into the request. OT_OK also when nothing fits: then there
// are no plans, and remedies where there are any. OT_USAGE when no split can run at all.
ot_status ot_plan_page_build(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out);

// Proves that the schedules of all ranks of the run of `candidate` fit each other, as training does
// when it starts (train/loop_start.h). OT_BUG where they do not.
ot_status ot_plan_prove(const ot_job *job, const ot_candidate *candidate, ot_arena *arena);

// What the run of `candidate` takes as it is simulated, schedule by schedule. Lives in `arena`.
ot_status ot_plan_predict(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                          ot_prediction *out);
