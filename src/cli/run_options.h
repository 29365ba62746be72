// SPDX-License-Identifier: Apache-2.0
// The words RUN.yaml and --set KEY=VALUE, which every verb on a run takes.
#pragma once

#include "cli/options.h"
#include "files/config_file.h"

// Rows of verbs on a run: --ranks, --set and --expert-imbalance.
extern const ot_option ot_option_ranks, ot_option_set, ot_option_expert_imbalance;

// Loads and checks the run named by argument 0 with its --set. Its notes are not printed. Lives in
// `arena`.
ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config);

// Reads the configuration of the files that the run starts from, so that what is wrong with it is
// said before there are ranks, and adds its notes to those of the run.
ot_status ot_run_options_check_init(ot_config *config, ot_arena *arena);
