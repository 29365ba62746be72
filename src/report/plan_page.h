// SPDX-License-Identifier: Apache-2.0
// Everything that `orthant plan` found, and those who write it down: text, JSON, HTML, sections of
// RUN.yaml, scripts, a trace.
#pragma once

#include "base/text_builder.h"
#include "base/tree.h"
#include "plan/estimate.h"
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

// As text for people, at most 100 columns wide: what was asked, bill, limits, table of plans, why.
void ot_plan_report(const ot_plan_page *page, ot_text_builder *out);

// As one JSON document (interface: plan, JSON), in `arena`.
const char *ot_plan_json(const ot_plan_page *page, ot_arena *arena);

// As one HTML file that needs nothing else: no network, no scripts; style and drawings are inside.
// Prices the best plan again on other numbers of devices, and replays its step. OT_USAGE as
// ot_estimator_build.
ot_status ot_plan_html(const ot_plan_page *page, ot_text_builder *out);

// model, parallel, batch and precision of a run of `candidate`, as a map that RUN.yaml can begin
// with. Lives in `arena`.
ot_node *ot_plan_sections(const ot_plan_page *page, const ot_candidate *candidate, ot_arena *arena);

// What starts a plan: the sections of RUN.yaml, or a script that launches one rank for each device.
// Launchers are Open MPI, Slurm and the Kubernetes MPI operator as they stand; scripts stop ranks
// with USR1, so that they save, and start again what left with 75.
typedef enum ot_emit_kind {
  OT_EMIT_RUN,     // sections of RUN.yaml
  OT_EMIT_MPIRUN,  // shell script around mpirun
  OT_EMIT_SBATCH,  // Slurm batch script
  OT_EMIT_MPIJOB,  // Kubernetes MPIJob, v2beta1
  OT_EMIT_KINDS,
} ot_emit_kind;

// Reads KIND or KIND=FILE; `path` is null without a file. OT_USAGE for another kind.
ot_status ot_emit_parse(const char *text, ot_arena *arena, ot_emit_kind *kind, const char **path);

// OT_USAGE where `kind` would start this program in place of `engine`.
ot_status ot_emit_check(ot_emit_kind kind, const ot_engine *engine);

// Appends the file for the first plan of `page`, of which there must be one, and whose model must
// have a spelling in RUN.yaml.
void ot_plan_emit(const ot_plan_page *page, ot_emit_kind kind, ot_text_builder *out);

// Replays `candidate` of the estimator's job and writes it to `path` as a Chrome trace, for engines
// whose schedules are not built: one bar an action of the pipeline, with pid, tid and categories as
// in the traces of schedules, of the first rank of each stage.
ot_status ot_predicted_trace_write(ot_estimator *estimator, const ot_candidate *candidate,
                                   const char *path);
