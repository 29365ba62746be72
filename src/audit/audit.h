// SPDX-License-Identifier: Apache-2.0
// The audits: what each is asked, and the calls. All are collective over the world and block; the
// report that counts is the leader's. Each file says what its audit compares with what.
#pragma once

#include "audit/audit_report.h"
#include "train/loop.h"

// Fields that an audit has no use for are left alone; 0 asks for the usual amount.
typedef struct ot_audit_request {
  ot_trainer *trainer;     // whose weights, settings and layout are audited
  uint64_t seed;           // causality, precision: of the tokens, places and elements drawn
  int trials;              // causality: of each kind [16]
  int64_t tokens;          // drift: of a sequence, at most [128]
  int64_t planned_ranks;   // precision: that gradients will be summed over [those of the run]
  int steps;               // ranks: to compare after [2]; overlap: to measure [5]
  const char *checkpoint;  // step: what the trainer has just resumed from, or null
  // Tests: change the rows as a faulty loader would (causality), the model that decodes, the
  // exported files in the folder `path` (drift); or null.
  void (*amend_rows)(ot_rows *rows);
  void (*amend_model)(ot_model *model);
  void (*amend_files)(const char *path);
} ot_audit_request;

// The report's texts live in `arena`.
typedef ot_status (*ot_audit_call)(const ot_audit_request *request, ot_arena *arena,
                                   ot_audit_report *report);

// These take no step of the run.
ot_status ot_audit_causality(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report);
ot_status ot_audit_precision(const ot_audit_request *request, ot_arena *arena,
                             ot_audit_report *report);
ot_status ot_audit_drift(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);

// These take the next steps of `trainer`.
ot_status ot_audit_step(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);
ot_status ot_audit_ranks(const ot_audit_request *request, ot_arena *arena, ot_audit_report *report);
ot_status ot_audit_overlap(const ot_audit_request *request, ot_arena *arena,
                           ot_audit_report *report);

// Of precision, what needs no data: adds a finding for each setting whose format cannot do what is
// asked of it. Pure.
void ot_precision_lint(const ot_run *run, ot_audit_report *report);

// The audits that run->audit.checks asks for, as a run calls them between its steps: what they find
// is what the command finds, and ends the run. Keeps `run` until destroy, after the run has ended.
typedef struct ot_run_audits ot_run_audits;
ot_status ot_run_audits_create(const ot_run *run, ot_team *team, ot_run_audits **out);
void ot_run_audits_destroy(ot_run_audits **audits);

// One of them, the look of an ot_loop_check: compares replicas. `replicas` is an ot_replicas **,
// null before the first look; what it points to then is the caller's to destroy.
ot_status ot_ranks_look(void *replicas, ot_trainer *trainer, ot_arena *arena,
                        ot_loop_findings *findings);

// For ot_loop_request.
const ot_loop_check *ot_run_audits_checks(const ot_run_audits *audits, int *count);
