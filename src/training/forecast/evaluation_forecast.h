// SPDX-License-Identifier: Apache-2.0
// The work of a run besides its steps: the validations of `data.validation` and the evaluations of
// `evaluate:`, how often, and how long one takes on the cluster of a prediction.
#pragma once

#include "forecast/prediction.h"
#include "forecast/run_tasks.h"

typedef struct ot_evaluation_forecast {
  int64_t validations;        // in the run
  double validation_round_s;  // of a micro-batch on each rank
  double validation_s;        // of all sets; NaN: their size is not known (validation_tokens: 0)
  int64_t evaluations;        // in the run
  ot_run_tasks_cost tasks;    // of one; its seconds are NaN if `note` says why
  const char *note;           // why tasks have no price; null: they have one, or there are none
} ot_evaluation_forecast;

// The validations alone, of a run that may have none.
ot_status ot_evaluation_forecast_validation(const ot_prediction_request *request,
                                            const ot_prediction *prediction, ot_arena *arena,
                                            ot_evaluation_forecast *out);

// Fills in `out` for the run of `prediction`, made by ot_prediction_build of `request`. Files of
// tasks are read; data of validation is not. Text is allocated in `arena`. Called on one rank.
ot_status ot_evaluation_forecast_build(const ot_prediction_request *request,
                                       const ot_prediction *prediction, ot_arena *arena,
                                       ot_evaluation_forecast *out);

// Seconds of the whole run for both; NaN if a part is not known.
double ot_evaluation_forecast_s(const ot_evaluation_forecast *forecast);
