// SPDX-License-Identifier: Apache-2.0
// `orthant score --tasks`: the figures of tasks (evaluate/text_task.h), as `evaluate:` of a run
// reports them.
#pragma once

#include "cli/run_options.h"
#include "comm/comm.h"

typedef struct ot_score_tasks {
  const ot_options *options;  // the files are its arguments from the second on
  ot_opened_model *model;
} ot_score_tasks;

// The parts of a verb on ranks (ot_ranks_verb); context: ot_score_tasks. Prints one line for each
// file, with its figures.
ot_status ot_score_tasks_prepare(void *context, int ranks);
ot_status ot_score_tasks_run(ot_comm *comm, void *context);
