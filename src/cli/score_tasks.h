// SPDX-License-Identifier: Apache-2.0
// `orthant score --tasks`: the figures of tasks (evaluate/text_task.h), as `evaluate:` of a run
// reports them.
#pragma once

#include "cli/run_options.h"

// The files of the options' arguments from the second on; prints one line each, with the figures.
ot_status ot_score_tasks(const ot_options *options, ot_opened_model *model);
