// SPDX-License-Identifier: Apache-2.0
// The directory of a run (`output:`), held by one process at a time through a lock that the kernel
// drops when the process ends, however it ends.
//   config.yaml  metrics.jsonl  tensorboard/  checkpoints/step-00000100/  .lock
#pragma once

#include "base/arena.h"
#include "base/status.h"

typedef enum ot_run_directory_state {
  OT_RUN_EMPTY,    // nothing was there
  OT_RUN_FOREIGN,  // files, but not those of a run
  OT_RUN_PRESENT,  // config.yaml, metrics.jsonl or checkpoints/ of a run
} ot_run_directory_state;

typedef struct ot_run_directory ot_run_directory;

// Creates `path` with its parents where needed, takes its lock, and clears what an interrupted save
// left. Another holder is OT_ENVIRONMENT and names it.
ot_status ot_run_directory_create(const char *path, ot_run_directory **out);

// Gives the lock back.
void ot_run_directory_destroy(ot_run_directory **directory);

// What was found when it was opened.
ot_run_directory_state ot_run_directory_found(const ot_run_directory *directory);

// Paths inside it; valid until destroy. The two directories exist.
const char *ot_run_directory_path(const ot_run_directory *directory);
const char *ot_run_directory_checkpoints(const ot_run_directory *directory);
const char *ot_run_directory_tensorboard(const ot_run_directory *directory);
const char *ot_run_directory_metrics(const ot_run_directory *directory);
const char *ot_run_directory_config(const ot_run_directory *directory);
