// SPDX-License-Identifier: Apache-2.0
// The planner's web page with a plan in it: what `orthant plan --html` writes (docs/page.md).
#pragma once

#include "answer/plan_page.h"
#include "cli/options.h"

// The rows of a sweep (answer/sweep.h).
typedef struct ot_plan_live_rows {
  const char *json;  // {points, axes, rows: [{line, point}], names}
  const char *csv;
} ot_plan_live_rows;

// Appends the page of `make page`: it shows `plan` first, and its knobs are those of `options`.
// Readers without scripts see the report (report/plan_report.h). It stands alone where the page was
// not built, and for questions that only the program answers: with --calibrate or --deadline, with
// files of --from and --compare that are neither RUN.yaml nor scripts of Megatron-LM.
// With `rows` the page opens with a sweep, of which `plan` is a point; readers without scripts see
// the CSV, and it is OT_USAGE where the report would stand alone.
//   cluster  as described, before it has the devices of the job
//   rows     null: no sweep
ot_status ot_plan_live_write(const ot_options *options, const ot_plan_page *plan,
                             const ot_cluster *cluster, const ot_plan_live_rows *rows,
                             ot_text_builder *out);
