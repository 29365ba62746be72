// SPDX-License-Identifier: Apache-2.0
// The words of `orthant plan` as a job, with what is assumed where nothing was given.
#pragma once

#include "cli/options.h"
#include "files/config_file.h"
#include "import/import.h"
#include "plan/bill.h"

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
