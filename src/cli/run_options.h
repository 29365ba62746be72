// SPDX-License-Identifier: Apache-2.0
// The words RUN.yaml and --set KEY=VALUE, which every verb on a run takes.
#pragma once

#include "cli/options.h"
#include "train/config_file.h"

// Loads and checks the run named by argument 0 with its --set. Lives in `arena`.
ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config);
