// SPDX-License-Identifier: Apache-2.0
// Runs what a user would run on a configuration until the first finding: settings, the checks
// before a run, all audits, and some training with its monitors.
#pragma once

#include "support/audit_case.h"

typedef enum user_stage {
  USER_SETTINGS,  // the settings alone
  USER_START,     // schedule check, comparison between ranks before the start
  USER_STEP,      // audits
  USER_RANKS,
  USER_CAUSALITY,
  USER_DRIFT,
  USER_PRECISION,
  USER_TRAINING,  // spikes, non-finite numbers, replicas checked again
  USER_NOTHING,   // no stage found anything
} user_stage;

typedef struct user_request {
  audit_request run;
  bool resumes;                                         // saved after its first steps and resumed
  int training_steps;                                   // 0: none
  int64_t planned_ranks;                                // for the precision audit
  void (*created)(ot_trainer *trainer, void *context);  // before the first step, or null
  void *created_context;
  void (*decoder)(ot_model *model);
  void (*exported)(const char *path);
  void (*swapped)(ot_micro_batch *rows);
} user_request;

typedef struct user_report {
  user_stage stage;  // that found something
  char text[400];    // the finding or the rejection
  int inconclusive;  // number of inconclusive audits
} user_report;

const char *user_stage_name(user_stage stage);

user_report user_audits(const user_request *request);
