// SPDX-License-Identifier: Apache-2.0
// The events that the loop writes to the log of its run directory. On ranks other than the leader,
// which have no directory, these functions do nothing. Private to the loop.
#pragma once

#include "record/run_events.h"
#include "state/state_save.h"
#include "train/loop_start.h"

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
