// SPDX-License-Identifier: Apache-2.0
// `orthant schedule`: the task list of a rank as text, built and checked but not run.
#include <stdio.h>

#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "train/trainer.h"

static ot_status show(const ot_options *options, ot_arena *arena) {
  ot_config config;
  OT_TRY(ot_run_options_load(options, arena, &config));
  ot_output_notes(&config.notes);
  const int rank = (int)ot_options_integer(options, "rank");
  const int ranks = (int)ot_options_integer(options, "ranks");
  OT_CHECK(rank < ranks, OT_USAGE, "--rank %d: ranks are 0 to %d (--ranks)", rank, ranks - 1);
  ot_mesh mesh;
  OT_TRY(ot_mesh_build(&config.run.parallel, ranks, &mesh));
  ot_instance_request request = {.mesh = &mesh, .rank = rank};
  OT_TRY(ot_trainer_request(&config.run, arena, &request));
  request.split_backward = ot_options_flag(options, "split-backward");
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
  OT_TRY(ot_instance_plan(&request, arena, graphs, &schedule));
  OT_TRY(ot_schedule_check(&schedule, arena));
  if (ot_options_flag(options, "programs")) {
    for (int i = 0; i < graphs[OT_MODE_TRAIN].num_programs; i++) {
      fputs(ot_program_print(&graphs[OT_MODE_TRAIN].programs[i], arena), stdout);
    }
    return OT_OK;
  }
  fputs(ot_schedule_print(&schedule, arena), stdout);
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = show(options, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option rows[] = {
    {.name = "rank",
     .kind = OT_OPTION_INTEGER,
     .value = "R",
     .fallback = "0",
     .minimum = 0,
     .maximum = 1 << 20,
     .help = "the rank"},
    {.name = "ranks",
     .kind = OT_OPTION_INTEGER,
     .value = "N",
     .fallback = "1",
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "ranks of the run; none are started"},
    {.name = "programs",
     .kind = OT_OPTION_FLAG,
     .help = "print the programs of the blocks (forward and derived backward) instead"},
    {.name = "split-backward",
     .kind = OT_OPTION_FLAG,
     .help = "input and weight gradients as segments of their own"},
    {.name = "set",
     .kind = OT_OPTION_SETTING,
     .value = "KEY=VALUE",
     .help = "override a setting; lists as [a, b]"},
};

const ot_verb ot_verb_schedule = {
    .name = "schedule",
    .summary = "the task list of a training step as text",
    .arguments = "RUN.yaml",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Regions of the arena, segments with their tasks, and the orders that play them,\n"
        "checked as before a run. docs/schedule.md explains the words.",
    .examples =
        "  orthant schedule run.yaml --set parallel.recompute=full | less\n"
        "  orthant schedule run.yaml --ranks 8 --rank 3 --set parallel.tp=2",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .run = run,
};
