// SPDX-License-Identifier: Apache-2.0
// Where the time of a run went, from its event log and the times of its steps, beside what the
// model of simulate/goodput.h expects for failures as frequent. Pure.
//
//   start ..first step|steps..|save|steps..X   failure      restart        start ..first step|steps
//   |---- start -----|productive, lost      |-- detection --|-- waiting --|------ loading ----|
//
// A step that is repeated counts once as productive, the first time as lost. Every second of the
// wall time is in one item; what no event explains is in `other`.
#pragma once

#include "record/metrics.h"
#include "record/run_events.h"
#include "simulate/goodput.h"

typedef enum ot_account_item {
  OT_ACCOUNT_PRODUCTIVE,   // steps that count
  OT_ACCOUNT_STRAGGLERS,   // their extra time for a slow rank, in steps that the log names
  OT_ACCOUNT_LOST,         // steps that were repeated
  OT_ACCOUNT_CHECKPOINTS,  // no step ran because of a save
  OT_ACCOUNT_VALIDATION,
  OT_ACCOUNT_AUDITS,
  OT_ACCOUNT_EVALUATION,
  OT_ACCOUNT_START,      // of the first process until its first step
  OT_ACCOUNT_DETECTION,  // from the last sign of life until the supervisor saw the failure
  OT_ACCOUNT_WAITING,    // until it launched the next process
  OT_ACCOUNT_LOADING,    // from there until the first new step
  OT_ACCOUNT_IDLE,       // nothing ran and nothing was about to
  OT_ACCOUNT_OTHER,
  OT_ACCOUNT_ITEMS,
} ot_account_item;

// "productive", ..., and one clause on it.
const char *ot_account_name(ot_account_item item);
const char *ot_account_meaning(ot_account_item item);

// One process of the run.
typedef struct ot_run_attempt {
  int64_t step;  // it began after
  int64_t ranks;
  double begin_s;         // of the process, seconds since 1970
  double ready_s;         // start event
  double first_s;         // first_step event; NaN: none
  double last_s;          // last event
  double stop_s;          // stop event; NaN: none
  double failure_s;       // first failure event after it; NaN: none
  double restart_s;       // last restart event after it; NaN: none
  int64_t failures;       // after it: its own, and those of processes that did not come to a start
  double end_s;           // last sign of life, from events and the times of steps
  const char *reason;     // of the stop; "": none
  int64_t first_step;     // of the first_step event
  double first_step_s;    // time of that step; of a lost one, the mean of the lost ones
  double kept_s, lost_s;  // of steps
  int64_t lost_steps;
  double blocked_s, validation_s, audit_s, evaluation_s;
  double before_s;  // validation and evaluation before the first step
} ot_run_attempt;

typedef struct ot_run_account {
  ot_run_attempt *attempts;  // [num_attempts]; none: the run has no event log
  int64_t num_attempts;
  double begin_s, end_s;            // seconds since 1970
  double wall_s;                    // end_s - begin_s
  double item_s[OT_ACCOUNT_ITEMS];  // their sum is wall_s
  int64_t steps, lost_steps;
  int64_t failures;  // processes that did not end by themselves or by a signal
  bool restarting;   // the supervisor launched a process that has not started yet
  bool open;         // the last process has written no end: it runs, or was killed
  // checkpoints
  int64_t saves, failed_saves;
  double save_s, blocked_s;  // mean of a save; NaN: none
  int64_t save_bytes;        // of the last
  double interval_s;         // of steps per save; NaN: none
  // figures for the model; NaN: unknown
  double mtbf_s;        // time without idle over failures
  double recovery_s;    // mean from a failure to the first new step
  bool modelled;        // `expected` is known
  ot_goodput expected;  // at the used interval
} ot_run_account;

typedef struct ot_account_builder ot_account_builder;

// Begins with the events of a run, which it keeps. All memory is in `arena`.
ot_account_builder *ot_account_begin(const ot_run_event_list *events, ot_arena *arena);

// Adds the line of a step; true if it is the first step of a process. Lines in ascending order of
// steps.
bool ot_account_add_step(ot_account_builder *builder, const ot_metrics_step *step);

// After the last step. The builder is spent.
void ot_account_finish(ot_account_builder *builder, ot_run_account *account);
