// SPDX-License-Identifier: Apache-2.0
// A verb on the ranks that --ranks N (threads of this process) or an MPI launcher give.
#pragma once

#include "cli/options.h"
#include "comm/comm.h"

typedef struct ot_ranks_verb {
  // Reads what all ranks of a process need, and refuses what does not fit so many ranks, before any
  // file is written. Once a process.
  ot_status (*prepare)(void *context, int ranks);
  // The work of one rank.
  ot_rank_main run;
  void *context;  // of both; shared by the ranks of a process
} ot_ranks_verb;

// How many ranks there are by --ranks or a launcher, and whether they are processes of a launcher.
// OT_RANKS where a launcher cannot be answered.
ot_status ot_ranks_count(const ot_options *options, int *ranks, bool *processes);

// Prepares and runs on all of them; OT_RANKS where --ranks says other than the launcher, before
// anything else. A failure is printed once: what is returned has a message on
// the process that is to print it, and no text elsewhere. Blocks.
ot_status ot_ranks_run(const ot_options *options, const ot_ranks_verb *verb);
