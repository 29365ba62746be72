// SPDX-License-Identifier: Apache-2.0
// Runs a verb on ranks: threads of this process (--ranks N) or processes of an MPI launcher.
#pragma once

#include "cli/options.h"
#include "comm/comm.h"

typedef struct ot_ranks_verb {
  // Reads what all ranks of a process need, and refuses settings that are invalid for `ranks`,
  // before any file is written. Called once per process.
  ot_status (*prepare)(void *context, int ranks);
  // The work of one rank.
  ot_rank_main run;
  void *context;  // of both; shared by the ranks of a process
} ot_ranks_verb;

// The number of ranks by --ranks or a launcher, and whether they are processes of a launcher.
// OT_RANKS if this build cannot join the launcher.
ot_status ot_ranks_count(const ot_options *options, int *ranks, bool *processes);

// Prepares and runs `verb` on all ranks; OT_RANKS first if --ranks differs from the launcher. A
// failure is printed once: only the process that prints it returns a message. Blocks.
ot_status ot_ranks_run(const ot_options *options, const ot_ranks_verb *verb);

// For ot_loop_request: prints the failure of the calling thread and ends the process with OT_RANKS,
// since a kernel that hangs can be ended in no other way.
void ot_ranks_end_at_hang(void);

// For ot_stop_signal_install: says that nothing was changed and ends the process.
void ot_ranks_end_at_start(void);
