// SPDX-License-Identifier: Apache-2.0
// Turns the options of `orthant plan` into a job, with defaults for missing ones, and the job into
// the page: search, limits, reasons, failures of the run.
#pragma once

#include "cli/options.h"
#include "files/config_file.h"
#include "import/import.h"
#include "plan/model_totals.h"
#include "report/plan_page.h"
#include "train/prediction.h"

typedef struct ot_plan_request {
  ot_job job;  // points into this request, which must not be moved
  ot_model_totals bill;
  ot_config config;          // the run that engine orthant would train
  ot_cluster cluster;        // with the devices of the job
  const char *model_name;    // as given by the user
  const char *model_source;  // for a run: preset or absolute path; null: its keys
  bool has_run;              // config holds a run; false for imported models without an HF family
  bool is_imported;          // --from
  ot_imported imported;
  ot_candidate own;  // the configuration of --from
  int num_notes;
  const char **notes;  // [num_notes]
} ot_plan_request;

// OT_USAGE and OT_ENVIRONMENT as the loaders of models and clusters, and for inconsistent options.
// Everything lives in `arena`.
ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out);

typedef struct ot_plan_build {
  const ot_plan_request *request;
  int top;                       // plans kept
  bool variants;                 // keep slower plans with the same degrees and ZeRO stage
  double critical_batch_tokens;  // measured value; 0: scaling law
  double price;                  // dollars of a device hour; 0: no costs
} ot_plan_build;

// The page lives in `arena` and points into the request. OT_OK also when nothing fits: the page
// then has no plans, but remedies if there are any. OT_USAGE if no configuration is valid.
ot_status ot_plan_page_build(const ot_plan_build *build, ot_arena *arena, ot_plan_page *out);

// Proves that the schedules of all ranks of the run of `candidate` fit each other, as training does
// when it starts (train/loop_start.h). OT_BUG where they do not.
ot_status ot_plan_prove(const ot_job *job, const ot_candidate *candidate, ot_arena *arena);

// Predicts the run of `candidate` by simulating its schedules. Lives in `arena`.
ot_status ot_plan_predict(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                          ot_prediction *out);
