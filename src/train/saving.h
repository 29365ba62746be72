// SPDX-License-Identifier: Apache-2.0
// When a run saves, and what follows: which checkpoints stay, and what a failed save means. A save
// that fails does not end the run: the next one is due after the usual number of steps. Private to
// train/loop*.c.
#pragma once

#include "train/state_save.h"

struct ot_loop;

// Failed saves in a row that end the run.
enum { OT_SAVING_FAILURES_MAX = 3 };

typedef struct ot_saving {
  ot_state_save *state;
  int64_t saved_step;  // newest checkpoint of this run; -1: none
  int64_t under_way;   // step of the save that runs beside the steps; -1: none
  bool due;            // a save became due meanwhile
  int failures;        // in a row
} ot_saving;

// Collective over the world.
ot_status ot_saving_create(struct ot_loop *l);
// Waits for this rank's part of a save under way. Local.
void ot_saving_destroy(struct ot_loop *l);

// Saves the state between two steps, if it is not saved yet. With checkpoint.async it only starts
// saving, or does so when the save under way has ended. A failure is a note; it is returned if it
// is one too many or, as all others, not one of files. Collective over the world.
ot_status ot_saving_save(struct ot_loop *l);

// The same for the last save of this process: waits for it, and returns any failure.
ot_status ot_saving_save_last(struct ot_loop *l);

// Whether this rank is busy with a save that runs beside the steps. Local, does not block.
bool ot_saving_busy(const struct ot_loop *l);

// Called in each step; `busy`: some rank is. Collective over the world.
ot_status ot_saving_poll(struct ot_loop *l, bool busy);

// Waits for the save under way, if any. Errors as ot_saving_save. Collective over the world.
ot_status ot_saving_finish(struct ot_loop *l);
