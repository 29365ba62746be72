// SPDX-License-Identifier: Apache-2.0
// Everything that `orthant plan` found, for those who write it down: text, JSON, HTML, a trace.
#pragma once

#include "base/tree.h"
#include "plan/explain.h"
#include "plan/search.h"
#include "simulate/goodput.h"

// A plan as it is shown.
typedef struct ot_page_plan {
  const ot_estimate *estimate;
  const ot_stage_estimate *stages;  // [estimate->candidate.pp]
  ot_reasons why;                   // the first: the recipe; others: what they lose against it
  ot_reasons beyond;                // what of it no published run has
  const char *beyond_note;          // the same as a sentence; null: nothing
} ot_page_plan;

typedef struct ot_plan_page {
  const ot_job *job;
  ot_estimator *estimator;   // of the job, with the prices of what is shown
  const char *model_name;    // as the user called it
  const char *model_source;  // of a run: preset or absolute path; null: its keys are written out
  const ot_run *run;         // settings that plans leave open; null: HF has no such model
  const ot_node *settings;   // the same as read, with the place of each; null with it
  const ot_bill *bill;
  const ot_limits *limits;
  const ot_search *search;
  int num_plans;
  const ot_page_plan *plans;     // [num_plans] those of search, best first
  const ot_page_plan *imported;  // what --from describes, priced the same way; null without --from
  int64_t steps;                 // of the whole run
  const ot_goodput *goodput;     // of it with the best plan; null on a machine without failures
  int num_remedies;              // where no plan fits
  const char *const *remedies;   // [num_remedies] what would, smallest change first
  const char *basis;             // of prices on the cluster: "fitted", "extrapolated", ...
  const char *basis_note;        // what that means; null: they were fitted to runs on such devices
  int num_notes;
  const char *const *notes;  // [num_notes] what was assumed where nothing was given
} ot_plan_page;
