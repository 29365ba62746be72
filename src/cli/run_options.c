// SPDX-License-Identifier: Apache-2.0
// A run from the command line.
#include "cli/run_options.h"

#include "cli/installed.h"

ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config) {
  const ot_config_request request = {
      .path = ot_options_argument(options, 0),
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
      .presets = ot_installed_presets(arena),
  };
  return ot_config_load(&request, arena, config);
}
