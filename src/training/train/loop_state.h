// SPDX-License-Identifier: Apache-2.0
// The state of a running loop, shared by its files. Private to train/loop*.c.
#pragma once

#include "record/heartbeat.h"
#include "record/metrics.h"
#include "record/tensorboard.h"
#include "record/trace_ranks.h"
#include "runtime/kernel_watch.h"
#include "train/loop_evaluate.h"
#include "train/loop_events.h"
#include "train/loop_start.h"
#include "train/prediction.h"
#include "train/saving.h"
#include "train/spike_watch.h"
#include "train/straggler.h"

// The times that ranks exchange at the end of a window of steps (loop_stragglers.c).
typedef struct ot_rank_times {
  bool on;
  ot_straggler_window window;
  ot_straggler_history history;  // equal on all ranks
  double *meeting;               // [OT_WORLD_VALUES + size] values of the meeting of a step
  double *scratch;               // [size]
  int *work;                     // [size] equal for ranks with the same work
} ot_rank_times;

typedef struct ot_loop {
  const ot_loop_request *request;
  const ot_run *run;
  ot_arena *arena;
  ot_loop_start start;
  ot_metrics *metrics;
  ot_tensorboard *tensorboard;
  ot_trace *trace;
  ot_heartbeat *heartbeat;  // on the leader
  ot_kernel_watch *watch;   // or null
  double open_s;            // clock when this process began
  double begin_s;           // clock when it began its first step
  int64_t begin_step;
  ot_loop_account account;  // on the leader
  ot_loop_summary summary;
  double trace_begin_s;
  ot_loop_evaluation evaluation;
  ot_saving saving;
  bool copies_in_memory;     // are made
  bool copy_due;             // one became due while a rank was busy with the last
  int64_t planned_bytes;     // of all ranks of this process
  ot_prediction prediction;  // on the leader; without steps if unknown
  ot_step_means means;
  ot_spike_watch spikes;
  ot_rank_times rank_times;
  bool trace_failed;    // no trace any more; the same on all ranks
  int64_t lost_before;  // lines of files that were closed
  bool told_events;     // that some are not recorded
} ot_loop;

static inline bool ot_loop_leads(const ot_loop *l) { return ot_world_is_leader(l->request->world); }

// Opens the files that the leader writes at each step, to continue after the trainer's position:
// what they have after it is removed, and the event log tells what that was.
ot_status ot_loop_open_logs(ot_loop *l);
void ot_loop_close_logs(ot_loop *l);
// Tells what happened to these files, after `step`. On the leader.
void ot_loop_tell_logs(ot_loop *l, int64_t step);
// Lines and events of this process that could not be written. On the leader.
int64_t ot_loop_lost_lines(const ot_loop *l);

// Takes the next step. One that is not finite is taken again, if the run's on_spike says so.
// Collective over the world.
ot_status ot_loop_take_step(ot_loop *l, ot_step_report *report);

// OT_FINDINGS on all ranks if the counters of one changed in memory. Collective over the world.
ot_status ot_loop_check_position(ot_loop *l);

// Reports a step that is an outlier and answers it as the run's on_spike says. *went_back: the next
// step is the one after an earlier checkpoint. OT_NUMERIC ends the run. Collective over the world.
ot_status ot_loop_watch_spikes(ot_loop *l, const ot_step_report *report, bool *went_back);

// Stragglers are looked for from now on.
void ot_loop_begin_stragglers(ot_loop *l);
// Adds the time of this rank's step. At the end of a window, puts the times of all ranks into
// `values` [size], zero but for its own, and returns how many there are; else 0. The same on all
// ranks.
int ot_loop_put_time(ot_loop *l, double step_s, double *values);
// Reports the straggler, if there is one, by `values` [size], summed over ranks. Collective over
// the world.
ot_status ot_loop_report_straggler(ot_loop *l, int64_t step, const double *values);
