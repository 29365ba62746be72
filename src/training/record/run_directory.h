// SPDX-License-Identifier: Apache-2.0
// The directory of a run (`output:`), held by one process at a time through a lock that the kernel
// releases when the process ends for any reason.
//   config.yaml  metrics.jsonl  events.jsonl  tensorboard/  checkpoints/step-00000100/
//   .lock  .saved  .history
// .saved exists once a checkpoint was saved; it distinguishes a run whose checkpoints are missing
// from one that was stopped before its first.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"
#include "record/run_events.h"

typedef enum ot_run_directory_state {
  OT_RUN_EMPTY,    // did not exist or was empty
  OT_RUN_FOREIGN,  // files, but not those of a run
  OT_RUN_PRESENT,  // config.yaml, metrics.jsonl or checkpoints/ of a run
} ot_run_directory_state;

typedef struct ot_run_directory ot_run_directory;

// Creates `path` with its parents if needed, takes its lock, and removes remains of an interrupted
// save or write. OT_ENVIRONMENT names another holder.
ot_status ot_run_directory_create(const char *path, ot_run_directory **out);

// Releases the lock.
void ot_run_directory_destroy(ot_run_directory **directory);

// The state of the directory when it was opened.
ot_run_directory_state ot_run_directory_found(const ot_run_directory *directory);

// Steps that have metrics, 0: none.
ot_status ot_run_directory_steps(const ot_run_directory *directory, int64_t *steps);

// Whether a checkpoint of this run was saved.
bool ot_run_directory_saved(const ot_run_directory *directory);

// Records that a checkpoint was saved, and that the run began with `--resume origin` ("": without).
ot_status ot_run_directory_set_saved(ot_run_directory *directory, const char *origin);
// Removes the record: a new run starts here.
ot_status ot_run_directory_clear_saved(ot_run_directory *directory);

// Whether a checkpoint was saved by a run that began with `--resume origin`.
ot_status ot_run_directory_began_with(const ot_run_directory *directory, const char *origin,
                                      ot_arena *arena, bool *began);

// The history that copies in memory must belong to (memory_copies.h).
typedef struct ot_run_history {
  uint64_t number;     // of the states that the run continues; 0: no copies. Another one is drawn
                       // whenever the run begins, or goes back to an older state
  int64_t saved_step;  // newest checkpoint saved since; -1: none
} ot_run_history;
ot_run_history ot_run_directory_history(const ot_run_directory *directory);
ot_status ot_run_directory_draw_history(ot_run_directory *directory);
// A checkpoint of `step` was saved; without a history, nothing is recorded.
ot_status ot_run_directory_add_saved(ot_run_directory *directory, int64_t step);
// Copies do not belong to the run any more.
ot_status ot_run_directory_clear_history(ot_run_directory *directory);

// Moves what the run has after `step`, newer checkpoints and lines of metrics, to
// checkpoints/aside-N. *note reports it, in `arena`; null: no checkpoint is newer.
ot_status ot_run_directory_rewind(const ot_run_directory *directory, int64_t step, ot_arena *arena,
                                  const char **note);

// Appends an event. One that cannot be written is counted.
void ot_run_directory_log(ot_run_directory *directory, const ot_run_event *event);
// Events that could not be written, and why the first could not; null: all are.
int64_t ot_run_directory_lost(const ot_run_directory *directory, const char **why);

// Paths in it; valid until destroy. Both directories exist.
const char *ot_run_directory_checkpoints(const ot_run_directory *directory);
const char *ot_run_directory_tensorboard(const ot_run_directory *directory);
const char *ot_run_directory_metrics(const ot_run_directory *directory);
const char *ot_run_directory_events(const ot_run_directory *directory);
const char *ot_run_directory_config(const ot_run_directory *directory);
