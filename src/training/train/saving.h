// SPDX-License-Identifier: Apache-2.0
// When a run saves, and what follows: which checkpoints stay, and what a failed save means. A save
// that fails does not end the run: the next one is due after the usual number of steps. Private to
// train/.
#pragma once

#include "record/spike_watch.h"
#include "record/step_means.h"
#include "state/state_save.h"
#include "train/session.h"

// The step of a process that is saved first with checkpoint.every: auto, to measure a save.
enum { OT_SAVING_FIRST = 3 };

typedef struct ot_saving {
  const ot_step_means *means;  // of the steps so far, for the interval
  ot_spike_watch *spikes;      // gets the step of each complete save
  ot_state_save *state;
  int64_t saved_step;  // newest checkpoint of this run; -1: none
  int64_t under_way;   // step of the save that runs while training goes on; -1: none
  bool due;            // a save became due meanwhile
  int failures;        // in a row
  int64_t every;       // steps between saves when the newest one began; 0: no interval
  // With checkpoint.every: auto.
  int64_t steps_since;        // the last save became due
  int64_t chosen;             // steps between saves, when one last became due; 0: none has
  bool tried;                 // a save became due in this process
  int64_t num_measured;       // saves of this process that ended well
  double blocked_s, seconds;  // sums over these
  int64_t said;               // interval of the last note; 0: none
} ot_saving;

// Collective over the world.
ot_status ot_saving_create(ot_saving *saving, const ot_session *s);
// Waits for this rank's part of a save under way. Local.
void ot_saving_destroy(ot_saving *saving);

// Saves the state between two steps, if it is not saved yet. With checkpoint.async it only starts
// saving, or does so when the save under way has ended. A failure is a note; it is returned if it
// is one too many or, as all others, not one of files. Collective over the world.
ot_status ot_saving_save(ot_saving *saving, const ot_session *s);

// How many steps should lie between saves with checkpoint.every: auto, which the leader chooses,
// with a note if it is new or has more than doubled or halved; 0 elsewhere and otherwise. Local.
int64_t ot_saving_choose(ot_saving *saving, const ot_session *s);

// After a step: ot_saving_save if one is due; `chosen` is the leader's choice. Collective over the
// world.
ot_status ot_saving_save_due(ot_saving *saving, const ot_session *s, int64_t chosen);

// The same as ot_saving_save for the last save of this process: waits for it, and returns any
// failure.
ot_status ot_saving_save_last(ot_saving *saving, const ot_session *s);

// Whether this rank is busy with a save that runs while training goes on. Local, does not block.
bool ot_saving_busy(const ot_saving *saving);

// Called in each step; `busy`: some rank is. Collective over the world.
ot_status ot_saving_poll(ot_saving *saving, const ot_session *s, bool busy);

// Waits for the save under way, if any. Errors as ot_saving_save. Collective over the world.
ot_status ot_saving_finish(ot_saving *saving, const ot_session *s);
