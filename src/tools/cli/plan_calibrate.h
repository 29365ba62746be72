// SPDX-License-Identifier: Apache-2.0
// `orthant plan --calibrate FILE`: measured steps correct the rates of the cluster of a request
// (advise/calibrate.h), which plans with them, and a cluster file is written for other verbs.
#pragma once

#include "answer/plan_calibrated.h"
#include "cli/plan_request.h"

// Reads FILE, a CSV of configurations and step times or a metrics.jsonl of one run, calibrates
// request->cluster and the predictions of request->job, and writes FILE with the ending
// .cluster.yaml: the corrected rates of the cluster as the user named it. OT_USAGE names line and
// column. `out` is kept by the job.
ot_status ot_plan_calibrate(const char *file, ot_plan_request *request, ot_arena *arena,
                            ot_calibration_report *out);
