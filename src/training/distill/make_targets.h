// SPDX-License-Identifier: Apache-2.0
// Writes the stores of a run's training sets: the teacher reads each window once.
#pragma once

#include "distill/teacher.h"

// A set on its way.
typedef struct ot_targets_progress {
  const char *path;       // of the store
  int64_t windows, done;  // of the set, and with a record
  int64_t tokens;         // of all windows
  int64_t bytes;          // of the store so far
  double forecast_bytes;  // of the store when it is complete
  double seconds;         // since this process began, for `fresh` windows
  int64_t fresh;
  int64_t targets;  // unmasked, of the windows since then; sums over these:
  double ids, loss, entropy;
} ot_targets_progress;

typedef struct ot_targets_request {
  const ot_run *run;  // run->distill has the teacher and what is drawn
  int threads;
  int64_t most_windows;  // of each set in this call; 0: all. Less leaves the store to be continued
  // Called after each micro-batch of the teacher, and once for a store that is complete already.
  void (*progress)(void *context, const ot_targets_progress *progress);
  void *context;
} ot_targets_request;

// Writes or continues the store of each training set. A complete one with the same header stays.
ot_status ot_targets_make(const ot_targets_request *request);
