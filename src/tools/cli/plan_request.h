// SPDX-License-Identifier: Apache-2.0
// Turns the options of `orthant plan` into a request (answer/question.h), and predicts and proves
// its plans from their schedules.
#pragma once

#include "answer/question.h"
#include "cli/options.h"
#include "files/config_file.h"
#include "files/import_file.h"
#include "forecast/prediction.h"

// OT_USAGE and OT_ENVIRONMENT as the loaders of models and clusters, and for inconsistent options.
// Everything lives in `arena`.
ot_status ot_plan_request_read(const ot_options *options, ot_arena *arena, ot_plan_request *out);

// The given options of a question as a map, by their names on the page: with underscores.
ot_node *ot_plan_question(const ot_options *options, ot_arena *arena);

// Proves that the schedules of all ranks of the run of `candidate` fit each other, as training does
// when it starts (train/loop_start.h). OT_BUG where they do not.
ot_status ot_plan_prove(const ot_job *job, const ot_candidate *candidate, ot_arena *arena);

// Predicts the run of `candidate` by simulating its schedules. Lives in `arena`.
ot_status ot_plan_predict(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                          ot_prediction *out);
