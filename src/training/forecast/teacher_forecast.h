// SPDX-License-Identifier: Apache-2.0
// The teacher of a run before the run: its price for plans and predictions, and what a
// dry run says of it.
#pragma once

#include "data/data_loader.h"
#include "simulate/teacher_price.h"

// The price of the live teacher of `run` on a rank of `cluster` (ot_cluster_share); zeros if the
// run has none.
ot_status ot_teacher_price_find(const ot_run *run, const ot_cluster *cluster, int threads,
                                ot_teacher_price *out);

// Finds these prices, each once: splits of a fleet need the same ones. In `arena`.
const ot_teacher_pricer *ot_teacher_pricer_create(ot_arena *arena);

typedef struct ot_teacher_forecast_request {
  const ot_run *run;
  ot_data_loader *loader;  // of the run
  int threads;             // of a rank
  ot_backend backend;
} ot_teacher_forecast_request;

typedef struct ot_teacher_forecast {
  int64_t bytes;     // of a live teacher on each rank that runs it; 0: none
  const char *note;  // a sentence; null: none
} ot_teacher_forecast;

// Opens stores and compares them with the run, connects to a server, or plans a live teacher and
// the copy of the model that writes for it. OT_USAGE, OT_ENVIRONMENT as when
// the run opens them.
ot_status ot_teacher_forecast_build(const ot_teacher_forecast_request *request, ot_arena *arena,
                                    ot_teacher_forecast *out);
