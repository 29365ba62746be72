// SPDX-License-Identifier: Apache-2.0
// A run from the command line.
#include "cli/run_options.h"

#include "base/text.h"
#include "cli/installed.h"
#include "runtime/model_files.h"

const ot_option ot_option_ranks = {"ranks",
                                   OT_OPTION_INTEGER,
                                   "N",
                                   "1",
                                   1,
                                   1 << 20,
                                   .help = "ranks as threads of this process (without a launcher)"};
const ot_option ot_option_set = {"set", OT_OPTION_SETTING, "KEY=VALUE",
                                 .help = "override a setting; lists as [a, b]"};
const ot_option ot_option_expert_imbalance = {
    "expert-imbalance", OT_OPTION_REAL, "X", "1",
    .help =
        "rows of the busiest rank of ep over their mean: what no buffer holds takes more rounds"};

ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config) {
  const ot_config_request request = {
      .path = ot_options_argument(options, 0),
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
      .presets = ot_installed_presets(arena),
  };
  return ot_config_load(&request, arena, config);
}

static void add_note(ot_config_notes *notes, const char *text) {
  for (int i = 0; i < notes->count; i++) {
    if (ot_text_equal(notes->text[i], text)) return;
  }
  notes->text[notes->count++] = text;
}

ot_status ot_run_options_check_init(ot_config *config, ot_arena *arena) {
  ot_model_files *const files = ot_arena_take(arena, sizeof *files);
  OT_TRY(ot_model_files_open_init(&config->run, OT_CHECKPOINT_HASH_TEXTS, arena, files));
  for (int i = 0; i < files->notes.count; i++) add_note(&config->notes, files->notes.text[i]);
  return OT_OK;
}
