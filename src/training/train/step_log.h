// SPDX-License-Identifier: Apache-2.0
// The files that the leader appends to at each step: metrics, TensorBoard, events. None of them
// ends a run: what happens to them is a note and an event, and what they lack is counted. Private
// to train/.
#pragma once

#include "record/metrics.h"
#include "record/run_events.h"
#include "record/tensorboard.h"
#include "state/state_save.h"
#include "train/loop_start.h"

// ---- events, on the leader: other ranks, which have no directory, do nothing ----

// One that cannot be written is counted (run_directory.h).
void ot_loop_log(const ot_loop_start *start, const ot_run_event *event);

// For the goodput in the metrics.
typedef struct ot_loop_account {
  double begin_s;    // when the run's first process began, in Unix seconds
  double counted_s;  // that the steps took which count
} ot_loop_account;

// The process, which began at `open_s` of its clock, is ready for its first step. Call it before
// ot_metrics_create removes the metrics of steps that are repeated, because the event counts them.
// Fills in `account`.
ot_status ot_loop_log_start(const ot_loop_request *request, const ot_loop_start *start,
                            double open_s, ot_loop_account *account);

// The process went back to the trainer's position and will repeat the steps after it. Call it
// before the metrics of these are removed. Updates `account`.
ot_status ot_loop_log_rewind(const ot_loop_start *start, ot_loop_account *account);

// The loop ends with `status`, whose message stays this thread's.
void ot_loop_log_stop(const ot_loop_start *start, ot_status status);

// A validation or an audit after `step`, which took from `begin_s` of the clock until now.
void ot_loop_log_timed(const ot_loop_start *start, ot_run_event_kind kind, int64_t step,
                       double begin_s);

// A checkpoint that is complete now.
void ot_loop_log_save(const ot_loop_start *start, const ot_state_saved *saved, int64_t every);

// A newer checkpoint than the one that was loaded is damaged, as `reason` says.
void ot_loop_log_fallback(const ot_loop_start *start, const char *reason);

// ---- all files, on the leader ----

struct ot_session;

typedef struct ot_step_log {
  ot_metrics *metrics;
  ot_tensorboard *tensorboard;
  double open_s;            // clock when this process began
  ot_loop_account account;  // for goodput
  bool opened;              // at least once
  int64_t lost_before;      // lines of files that were closed
  bool noted_events;        // that some are not recorded
} ot_step_log;

// Opens the files, to continue after the trainer's position: what they have after it is removed,
// and the event log states what that was.
ot_status ot_step_log_open(struct ot_session *s);
void ot_step_log_close(struct ot_session *s);

void ot_step_log_step(struct ot_session *s, const ot_metrics_step *line);
// And events of the sink.
void ot_step_log_validation(struct ot_session *s, int64_t step, const char *name, double loss);
void ot_step_log_figure(struct ot_session *s, int64_t step, const char *key, double value);
void ot_step_log_audit(struct ot_session *s, int64_t step, const ot_loop_findings *found);

// Notes what happened to these files, after `step`.
void ot_step_log_report(struct ot_session *s, int64_t step);
// Lines and events of this process that could not be written.
int64_t ot_step_log_lost(const struct ot_session *s);
