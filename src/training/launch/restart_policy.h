// SPDX-License-Identifier: Apache-2.0
// The decision of a supervisor when a training job has ended: whether it starts it again, when, and
// on how many ranks. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// How an attempt ended.
typedef struct ot_attempt {
  bool hung;                    // was ended because it made no progress
  bool launched;                // by a launcher, whose exit codes are not all ours
  int code;                     // exit code; of no meaning with hung or a signal
  int signal;                   // that killed it; 0: none
  bool began;                   // it ran steps
  int64_t step;                 // newest completed step of the run; 0: none
  int64_t saved_before, saved;  // newest checkpoint when it began and ended; 0: none
  double seconds;               // from start to end
} ot_attempt;

typedef enum ot_failure_kind {
  OT_FAILURE_RANK,
  OT_FAILURE_HANG,
  OT_FAILURE_NUMERIC,
  OT_FAILURE_ENVIRONMENT,
  OT_FAILURE_LAUNCHER,
} ot_failure_kind;

// "rank", "hang", "numeric", "environment", "launcher": as in events.
const char *ot_failure_kind_name(ot_failure_kind kind);
ot_failure_kind ot_attempt_kind(const ot_attempt *attempt);

// The state of the policy between attempts. The caller sets `restarts`, `sizes` and `num_sizes`.
typedef struct ot_restart_state {
  int restarts;      // allowed, until a stretch of progress
  const int *sizes;  // [num_sizes] numbers of ranks that the job may have, falling
  int num_sizes;
  int used;           // restarts since then
  int idle;           // failures in a row without a new step
  int same;           // failures in a row of the same step
  int unstarted;      // failures in a row before the first step, on this number of ranks
  int64_t best_step;  // newest step before the last failure
  int size;           // index in sizes of the running or last attempt
  int good_size;      // index of one smaller than the first that has run steps; 0: none
} ot_restart_state;

typedef enum ot_restart_action {
  OT_RESTART_ENDS,      // the attempt's exit code is that of the run
  OT_RESTART_GIVES_UP,  // a failure that is not tried again
  OT_RESTART_AGAIN,
} ot_restart_action;

typedef struct ot_restart {
  ot_restart_action action;
  const char *why;  // gives up: a sentence part; else ""
  double wait_s;    // again: before the next attempt
  int ranks;        // again: of the next attempt
} ot_restart;

// Same step three times, unless killed from outside; exit codes 2 and, of our own process, 1, and 5
// are not tried again. Waits 0, 1, 2, 4, ... 60 s while no step is new. An attempt of ten minutes
// with a new checkpoint renews `restarts`. Two attempts that do not reach a step make the next one
// smaller; after one that did, the next has the first size again.
ot_restart ot_restart_decide(ot_restart_state *state, const ot_attempt *attempt);
