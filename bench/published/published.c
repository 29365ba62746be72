// SPDX-License-Identifier: Apache-2.0
// Compares the planner with published, measured runs: predicts every row of files of published runs
// and reports the errors. docs/published.md documents the file format, the values assumed for
// missing fields, the fits and the results.
#include <stdio.h>

#include "files/tree_file.h"
#include "published_calibrate.h"
#include "published_left_out.h"
#include "published_report.h"
#include "published_serve.h"
#include "support/bench_program.h"

static ot_status read_rows(const ot_options *options, ot_arena *arena, ot_published_rows *rows) {
  const int count = ot_options_num_arguments(options);
  for (int i = 0; i < count; i++) {
    OT_TRY(ot_published_rows_read(ot_options_argument(options, i), arena, rows));
  }
  if (count > 0) return OT_OK;
  return ot_published_rows_read(OT_SOURCE_DIR "/tests/fixtures/published_small.json", arena, rows);
}

static ot_status price_rows(const ot_options *options, const ot_published_rows *rows,
                            ot_arena *arena, ot_published_prices *prices) {
  ot_published_setup *const setup = ot_arena_take(arena, sizeof *setup);
  *setup = (ot_published_setup){.clusters = ot_options_text(options, "clusters"),
                                .unnamed = ot_options_flag(options, "unnamed"),
                                .arena = arena};
  ot_node *constants = NULL;
  if (ot_options_given(options, "constants")) {
    OT_TRY(ot_tree_load(ot_options_text(options, "constants"), arena, &constants));
  }
  setup->constants = constants;
  ot_published_prices_create(rows, arena, prices);
  return ot_published_prices_update(setup, arena, prices);
}

static ot_status price_and_report(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  ot_published_rows rows = {0};
  OT_TRY(read_rows(options, arena, &rows));
  if (ot_options_flag(options, "serve")) {
    return ot_published_serve(ot_options_text(options, "clusters"),
                              ot_options_flag(options, "unnamed"), &rows);
  }
  ot_published_prices prices, left_out = {0};
  OT_TRY(price_rows(options, &rows, arena, &prices));
  if (ot_options_given(options, "left-out")) {
    ot_node *constants = NULL;
    OT_TRY(ot_tree_load(ot_options_text(options, "left-out"), arena, &constants));
    const ot_published_left_out_request request = {.clusters = ot_options_text(options, "clusters"),
                                                   .constants = constants,
                                                   .rows = &rows,
                                                   .named = ot_options_flag(options, "named")};
    OT_TRY(ot_published_left_out(&request, arena, &left_out));
  }
  const int calibrate = (int)ot_options_integer(options, "calibrate");
  ot_published_calibrated calibrated = {0};
  if (calibrate > 0) {
    OT_TRY(ot_published_calibrate(left_out.num_rows > 0 ? &left_out : &prices, calibrate, arena,
                                  &calibrated));
  }
  const ot_published_report report = {&prices, &left_out, calibrate, &calibrated};
  if (ot_options_json(options)) {
    puts(ot_published_json(&report, arena));
    return OT_OK;
  }
  const ot_published_view view = {.worst = (int)ot_options_integer(options, "worst"),
                                  .rows = ot_options_flag(options, "rows")};
  ot_text_builder text = {.arena = arena};
  ot_published_print(&report, &view, &text);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

static const ot_option options[] = {
    {"rows", OT_OPTION_FLAG, .help = "one line per row"},
    {"worst", OT_OPTION_INTEGER, "N", "0", 0, 1 << 20,
     .help = "the N rows with the largest errors"},
    {"constants", OT_OPTION_PATH, "FILE",
     .help = "{PRESET: {key: value}} that override the cluster presets"},
    {"left-out", OT_OPTION_PATH, "FILE",
     .help = "{SOURCE: {PRESET: {key: value}}}: constants fitted without a source, tested on it\n"
             "without reading its name"},
    {"named", OT_OPTION_FLAG,
     .help = "with --left-out: the name of a source still tells its software"},
    {"unnamed", OT_OPTION_FLAG, .help = "no name of a source or of software is read"},
    {"calibrate", OT_OPTION_INTEGER, "K", "0", 0, OT_MOST_CALIBRATING,
     .help = "K rows of each source calibrate the prediction of its others"},
    {"serve", OT_OPTION_FLAG,
     .help = "answer each line of constants on stdin with the predictions of all rows"},
    {"clusters", OT_OPTION_PATH, "DIR", OT_SOURCE_DIR "/presets/clusters",
     .help = "cluster presets"},
};

const ot_verb ot_bench_program = {
    .name = "published",
    .prefix = OT_BENCH_PREFIX,
    .summary = "predicts published runs and reports the planner's errors",
    .arguments = "[FILE.json...]",
    .max_arguments = -1,
    .details =
        "Default file: the small set of the tests. Errors are in percent of the measured\n"
        "value; a row without a prediction counts as 100 %.",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = price_and_report,
};
