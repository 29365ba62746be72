// SPDX-License-Identifier: Apache-2.0
// The answer to a question of the planner, for the program and the web page alike: plans with their
// reasons and ranges, limits, the run; as JSON, as sections of RUN.yaml and as launch scripts. Text
// and HTML: report/plan_report.h.
#pragma once

#include "advise/doubt.h"
#include "advise/explain.h"
#include "advise/remedy.h"
#include "advise/teacher_split.h"
#include "answer/plan_calibrated.h"
#include "base/text_builder.h"
#include "base/tree.h"
#include "estimate/estimate.h"
#include "search/search.h"
#include "simulate/goodput.h"

// A plan as shown to the user.
typedef struct ot_page_plan {
  const ot_estimate *estimate;
  const ot_stage_estimate *stages;  // [estimate->candidate.pp]
  ot_reasons why;                   // best plan: its explanation; others: comparison with it
  ot_reasons beyond;                // properties that no published run has
  const char *beyond_note;          // the same as a sentence; null: none
  ot_doubt doubt;
  const char *warning;  // what speaks against the price itself; null: nothing
  bool equal;           // cannot be told apart from the best plan
} ot_page_plan;

// "2.2 s to 3.4 s"; "51.2 GB to 55 GB" with allocator and runtime: the intervals of 80 %.
const char *ot_page_step_range(const ot_page_plan *plan, ot_arena *arena);
const char *ot_page_memory_range(const ot_page_plan *plan, ot_arena *arena);

// A configuration of --compare, priced like a plan.
typedef struct ot_page_compared {
  const char *name;
  ot_page_plan plan;
  ot_reasons first;  // comparison with the first of them; none for itself
} ot_page_compared;

// Elapsed time of the run with the best plan on some devices; 0: no plan fits.
typedef struct ot_deadline_trial {
  int devices;
  double elapsed_s;
} ot_deadline_trial;

enum { OT_MOST_DEADLINE_TRIALS = 96 };

// The numbers of devices that were tried for --deadline.
typedef struct ot_deadline {
  double seconds;
  int fewest;  // of them that end the run in time
  int num_trials;
  ot_deadline_trial trials[OT_MOST_DEADLINE_TRIALS];  // [num_trials]
  const char *text;                                   // the same in a sentence
} ot_deadline;

typedef struct ot_plan_page {
  const ot_job *job;
  ot_estimator *estimator;   // of the job, with the prices of the shown plans
  const char *model_name;    // as given by the user
  const char *model_source;  // for a run: preset or absolute path; null: its keys are written out
  const ot_run *run;         // settings that plans leave open; null: HF has no such model
  const ot_node *settings;   // the same as read, with the source of each; null if `run` is
  const ot_model_totals *totals;
  const ot_limits *limits;
  const ot_search *search;
  int num_plans;
  const ot_page_plan *plans;     // [num_plans] plans of `search`, best first
  const ot_page_plan *imported;  // configuration of --from, priced alike; null without --from
  int num_compared;
  const ot_page_compared *compared;  // [num_compared] of --compare
  const ot_teacher_split *teacher;   // null: the run has no live teacher
  const char *simpler;               // why plan 1 is not the fastest; null: it is
  const char *uneven;                // what chunks of plan 1 cost that are a list; null: none are
  const char *order;            // of the plans: "fastest first", "simplest first, then fastest"
  const ot_deadline *deadline;  // null without --deadline
  int64_t steps;                // of the whole run
  const ot_goodput *goodput;    // of the run with the best plan; null: failures not modelled
  double price;                 // dollars of a device hour; 0: not asked for
  int num_remedies;             // 0 if a plan fits
  const char *const *remedies;  // [num_remedies] changes that would fit, smallest first
  const ot_remedy *changes;     // [num_remedies] the same as values
  const ot_calibration_report *calibration;  // of the cluster; null without --calibrate
  const char *basis;       // of the cluster's constants: "fitted", "extrapolated", ...
  const char *basis_note;  // its explanation; null: fitted to runs on such devices
  int num_notes;
  const char *const *notes;  // [num_notes] assumptions
} ot_plan_page;

// Devices of a host of the cluster.
int ot_cluster_host(const ot_cluster *cluster);

// As one JSON document (interface: plan, JSON), in `arena`.
const char *ot_plan_json(const ot_plan_page *page, ot_arena *arena);

// Parts of that document, as members of the open object: degrees, bytes by class, and both with the
// seconds of the step.
void ot_candidate_write_json(const ot_candidate *candidate, ot_json_writer *w);
void ot_memory_write_json(const ot_memory_estimate *memory, ot_json_writer *w);
void ot_estimate_write_json(const ot_job *job, const ot_estimate *estimate, ot_json_writer *w);

// Whether a setting of the run (plan_page.settings; may be null) is the user's, by --set.
bool ot_setting_is_given(const ot_node *node);

// Sections model, parallel, batch and precision of RUN.yaml for `candidate`, as a map in `arena`.
ot_node *ot_plan_sections(const ot_plan_page *page, const ot_candidate *candidate, ot_arena *arena);

// Files that start a plan: sections of RUN.yaml, or a script that launches one rank per device with
// Open MPI, Slurm or the Kubernetes MPI operator. Scripts stop ranks with USR1, so that they save,
// and restart a run that exited with 75. Plans for other software have its own launch script
// (software/export.h).
typedef enum ot_emit_kind {
  OT_EMIT_RUN,     // sections of RUN.yaml
  OT_EMIT_MPIRUN,  // shell script around mpirun
  OT_EMIT_SBATCH,  // Slurm batch script
  OT_EMIT_MPIJOB,  // Kubernetes MPIJob, v2beta1
  OT_EMIT_OTHER,   // of the plan's engine, by the name of its software
  OT_EMIT_KINDS,
} ot_emit_kind;

// The kind called `name` [length], and the software of OT_EMIT_OTHER; OT_EMIT_KINDS if there is
// none.
ot_emit_kind ot_emit_find(const char *name, int64_t length, ot_software *software);

// OT_USAGE if it would start other software than the plan is for.
//   software  of OT_EMIT_OTHER
ot_status ot_emit_check(ot_emit_kind kind, ot_software software, const ot_engine *engine);

// Appends the file for the first plan of `page`, which must have a plan and, for Orthant's own,
// `run`. OT_USAGE names what other software cannot be configured to run.
ot_status ot_plan_emit(const ot_plan_page *page, ot_emit_kind kind, ot_text_builder *out);
