// SPDX-License-Identifier: Apache-2.0
// Published, measured runs against the planner: prices every row of files of published runs and
// says how far it is off. docs/published.md: the form of the files, what stands for what a source
// leaves open, what is fitted on what, and the results.
#include <stdio.h>

#include "device/heap.h"
#include "published_report.h"
#include "support/bench_program.h"
#include "train/tree_file.h"

static ot_status read_rows(const ot_options *options, ot_arena *arena, ot_published_rows *rows) {
  const int count = ot_options_num_arguments(options);
  for (int i = 0; i < count; i++) {
    OT_TRY(ot_published_rows_read(ot_options_argument(options, i), arena, rows));
  }
  if (count > 0) return OT_OK;
  return ot_published_rows_read(OT_SOURCE_DIR "/tests/fixtures/published_small.json", arena, rows);
}

static ot_status price_rows(const ot_options *options, ot_arena *arena,
                            ot_published_prices *prices) {
  ot_published_rows rows = {0};
  OT_TRY(read_rows(options, arena, &rows));
  ot_published_setup setup = {.clusters = ot_options_text(options, "clusters"), .arena = arena};
  ot_node *constants = NULL;
  if (ot_options_given(options, "constants")) {
    OT_TRY(ot_tree_load(ot_options_text(options, "constants"), arena, &constants));
  }
  setup.constants = constants;
  return ot_published_price_all(&setup, &rows, arena, prices);
}

static ot_status report(const ot_options *options, ot_arena *arena) {
  ot_published_prices prices;
  OT_TRY(price_rows(options, arena, &prices));
  if (ot_options_json(options)) {
    puts(ot_published_json(&prices, arena));
    return OT_OK;
  }
  const ot_published_view view = {.worst = (int)ot_options_integer(options, "worst"),
                                  .rows = ot_options_flag(options, "rows")};
  ot_text_builder text = {.arena = arena};
  ot_published_print(&prices, &view, &text);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = report(options, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option options[] = {
    {.name = "rows", .kind = OT_OPTION_FLAG, .help = "one line for each row"},
    {.name = "worst",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .fallback = "0",
     .help = "the N rows with the largest errors",
     .maximum = 1 << 20},
    {.name = "constants",
     .kind = OT_OPTION_PATH,
     .value = "FILE",
     .help = "{PRESET: {key: value}} in place of what the cluster presets say"},
    {.name = "clusters",
     .kind = OT_OPTION_PATH,
     .value = "DIR",
     .fallback = OT_SOURCE_DIR "/presets/clusters",
     .help = "cluster presets"},
};

const ot_verb ot_bench_program = {
    .name = "published",
    .prefix = OT_BENCH_PREFIX,
    .summary = "prices published runs and says how far the planner is off",
    .arguments = "[FILE.json...]",
    .max_arguments = -1,
    .details =
        "Without a file: the small set of the tests. All errors are in percent of what was\n"
        "measured; a row that cannot be priced counts as 100 %.",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run,
};
