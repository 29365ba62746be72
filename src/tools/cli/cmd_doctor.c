// SPDX-License-Identifier: Apache-2.0
// `orthant doctor`: the machine and the libraries, for users and bug reports.
#include <stdio.h>

#include "cli/verbs.h"
#include "measure/machine_report.h"

static void print_report(const ot_node *report, bool json, ot_arena *arena) {
  if (json) {
    ot_json_writer w = ot_json_begin(arena, 2);
    ot_node_write_json(report, NULL, &w);
    puts(w.text);
    return;
  }
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(report, 0, &text);
  fputs(text.text, stdout);
}

static ot_status run(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  print_report(ot_machine_report(arena), ot_options_json(options), arena);
  return OT_OK;
}

const ot_verb ot_verb_doctor = {
    .name = "doctor",
    .summary = "versions, libraries and machine, for a bug report",
    .arguments = "",
    .details =
        "The output identifies you or your data only by the names of this directory and of the\n"
        "BLAS library. `gpu` names the GPUs, the driver and the libraries that runs on them open,\n"
        "and `warnings` what to do where one is missing. `environment` holds the variables that\n"
        "change speed, including those that the program sets itself: OMP_WAIT_POLICY=passive and\n"
        "GOMP_SPINCOUNT=1000 make waiting threads sleep after tens of microseconds, unless you\n"
        "set one of them.",
    .json = true,
    .run = run,
};
