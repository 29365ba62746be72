// SPDX-License-Identifier: Apache-2.0
// What a run's steps should take on a described cluster: one rank of each stage, planned and priced
// before the first step, so that every line of metrics can hold the plan beside what came of it.
#pragma once

#include "describe/cluster.h"
#include "train/trainer.h"

typedef struct ot_prediction_request {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  const ot_cluster *cluster;
  int threads;  // of each rank
} ot_prediction_request;

// Steps with one number of micro-batches.
typedef struct ot_predicted_step {
  int micro_batches;
  double step_s;
  double model_flops;  // of all ranks
} ot_predicted_step;

typedef struct ot_prediction {
  double peak_flops;  // of all ranks, in the type that the run computes in
  int num_steps;
  ot_predicted_step *steps;  // [num_steps]
} ot_prediction;

// OT_USAGE where the cluster lacks a rate or has fewer devices than the run has ranks. Lives in
// `arena`. For one rank to call.
ot_status ot_prediction_build(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out);

// The steps with so many micro-batches, or null.
const ot_predicted_step *ot_prediction_find(const ot_prediction *prediction, int micro_batches);
