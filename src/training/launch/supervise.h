// SPDX-License-Identifier: Apache-2.0
// `orthant train --supervise`: starts the run as a child process, watches it, and starts it again
// after failures (launch/restart_policy.h).
#pragma once

#include "base/arena.h"
#include "describe/run.h"

typedef struct ot_supervision {
  const ot_run *run;
  const char *program;          // path of orthant
  const char *const *launcher;  // [num_launcher] words before the program, "{ranks}" for their
  int num_launcher;             // number; 0: ranks are threads
  const char *file;             // RUN.yaml
  const char *const *sets;      // [num_sets] "KEY=VALUE"
  int num_sets;
  const char *resume;    // of the first attempt: "auto", "never" or a path
  const char *trace;     // --trace, or null
  bool show_batch;       // in the first attempt
  bool json;             // --json
  int ranks, min_ranks;  // at first, and at least; a mesh of `ranks` is possible
  int restarts;          // at most
  void (*note)(void *context, const char *text);  // for the user, without a line end
  void *context;
} ot_supervision;

// Supervises the run. Returns the exit code of its last process. Blocks.
ot_status ot_supervise(const ot_supervision *request, ot_arena *arena);
