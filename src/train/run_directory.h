// SPDX-License-Identifier: Apache-2.0
// The directory of a run (`output:`), held by one process at a time through a lock that the kernel
// drops when the process ends, however it ends.
//   config.yaml  metrics.jsonl  tensorboard/  checkpoints/step-00000100/  .lock  .saved
// .saved is there once a checkpoint was saved, so that a run whose checkpoints are gone is told
// from one that was stopped before its first.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum ot_run_directory_state {
  OT_RUN_EMPTY,    // nothing was there
  OT_RUN_FOREIGN,  // files, but not those of a run
  OT_RUN_PRESENT,  // config.yaml, metrics.jsonl or checkpoints/ of a run
} ot_run_directory_state;

typedef struct ot_run_directory ot_run_directory;

// Creates `path` with its parents where needed, takes its lock, and clears what an interrupted save
// or write left. Another holder is OT_ENVIRONMENT and names it.
ot_status ot_run_directory_create(const char *path, ot_run_directory **out);

// Gives the lock back.
void ot_run_directory_destroy(ot_run_directory **directory);

// What was found when it was opened.
ot_run_directory_state ot_run_directory_found(const ot_run_directory *directory);

// Steps that its metrics tell of, 0: none.
ot_status ot_run_directory_steps(const ot_run_directory *directory, int64_t *steps);

// Whether a checkpoint of this run was saved.
bool ot_run_directory_saved(const ot_run_directory *directory);

// Says so from now on, and that the run began with `--resume origin` ("": without).
ot_status ot_run_directory_set_saved(ot_run_directory *directory, const char *origin);
// Says no more: a run begins here.
ot_status ot_run_directory_clear_saved(ot_run_directory *directory);

// Whether a checkpoint was saved of a run that began with `--resume origin`.
ot_status ot_run_directory_began_with(const ot_run_directory *directory, const char *origin,
                                      ot_arena *arena, bool *began);

// Sets aside what the run has beyond `step`: newer checkpoints, and the lines of its metrics, which
// go to checkpoints/aside-N. *note says so, in `arena`; null: no checkpoint is newer.
ot_status ot_run_directory_rewind(const ot_run_directory *directory, int64_t step, ot_arena *arena,
                                  const char **note);

// Paths inside it; valid until destroy. The two directories exist.
const char *ot_run_directory_checkpoints(const ot_run_directory *directory);
const char *ot_run_directory_tensorboard(const ot_run_directory *directory);
const char *ot_run_directory_metrics(const ot_run_directory *directory);
const char *ot_run_directory_config(const ot_run_directory *directory);
