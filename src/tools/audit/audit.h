// SPDX-License-Identifier: Apache-2.0
// The audits: their request and their calls. All are collective over the world and block; only the
// leader's report is valid. Each file states what its audit compares.
#pragma once

#include "audit/audit_report.h"
#include "train/loop.h"

// An audit ignores fields that it does not use; 0 selects the default.
typedef struct ot_audit_request {
  ot_trainer *trainer;     // whose weights, settings and layout are audited
  uint64_t seed;           // causality, precision: of the random tokens, positions and elements
  int trials;              // causality: of each kind [16]
  int64_t tokens;          // drift: of a sequence, at most [128]
  const char *against;     // drift: log-probabilities by other software (drift_against.h), or null
  int64_t planned_ranks;   // precision: data-parallel size of the planned run [that of this run]
  int steps;               // ranks: steps to compare after [2]; overlap: steps to measure [5]
  const char *checkpoint;  // step: checkpoint that the trainer has just resumed from, or null
  // Tests only, or null: change the tokens as a faulty loader would (causality), the model that
  // decodes, the one that is served, the exported files in the folder `path` (drift).
  void (*amend_rows)(ot_micro_batch *rows);
  void (*amend_model)(ot_model *model);
  void (*amend_served)(ot_model *model);
  void (*amend_files)(const char *path);
  void (*amend_run)(ot_run *run);  // coordinates: of a small model
} ot_audit_request;

// The report's texts are in `arena`.
typedef ot_status (*ot_audit_call)(const ot_audit_request *request, ot_arena *arena,
                                   ot_audit_report *report);

// These take no step of the run.
ot_status ot_audit_causality(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report);
ot_status ot_audit_precision(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report);
ot_status ot_audit_drift(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);
ot_status ot_audit_coordinates(const ot_audit_request *request, ot_arena *arena,
                               ot_audit_report *report);

// These take the next steps of `trainer`.
ot_status ot_audit_step(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);
ot_status ot_audit_ranks(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);
ot_status ot_audit_overlap(const ot_audit_request *request, ot_arena *arena,
                           ot_audit_report *report);

// The part of the precision audit that needs no data: adds a finding for each setting whose format
// cannot represent its updates. Pure.
void ot_precision_lint(const ot_run *run, ot_audit_report *report);

// The audits of run->audit.checks, run between the steps of a run. Their findings are those of the
// command, and a finding ends the run. Keeps `run` until destroy, after the run has ended.
typedef struct ot_run_audits ot_run_audits;
ot_status ot_run_audits_create(const ot_run *run, ot_world *world, ot_run_audits **out);
void ot_run_audits_destroy(ot_run_audits **audits);

// One of them, the callback of an ot_loop_check: compares replicas. `replicas` is an ot_replicas
// **, null before the first call; the caller destroys what it then points to.
ot_status ot_ranks_check(void *replicas, ot_trainer *trainer, ot_arena *arena,
                         ot_loop_findings *findings);

// For ot_loop_request.
const ot_loop_check *ot_run_audits_checks(const ot_run_audits *audits, int *count);
