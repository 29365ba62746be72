// SPDX-License-Identifier: Apache-2.0
// What a run's steps should take on a described cluster: one rank of each stage, planned and
// replayed by the simulator (simulate/simulate.h) before the first step, so that every line of
// metrics can hold the plan beside what came of it. Ranks of a stage are in step, so one stands for
// all.
#pragma once

#include "describe/cluster.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"
#include "train/step_means.h"
#include "train/trainer.h"

typedef struct ot_prediction_request {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  const ot_cluster *cluster;
  int threads;              // of each rank, >= 1
  int local_ranks;          // of the run on one machine; 0: all
  double expert_imbalance;  // load of the busiest rank of ep over the mean; 0: even
} ot_prediction_request;

// Steps with one number of micro-batches.
typedef struct ot_predicted_step {
  int micro_batches;
  ot_step_figures expected;
  double model_flops;  // of all ranks
  double stretch;      // of kernels, whose ranks share cores (simulate/shared_cores.h)
} ot_predicted_step;

// Memory of the rank that needs most, in bytes.
typedef struct ot_predicted_memory {
  int rank;
  ot_memory_bill bill;  // of its arena
  int64_t context;      // of the device's runtime and communicators, next to the arena
  int64_t capacity;     // of the device
  bool fits;            // arena + context <= capacity
} ot_predicted_memory;

typedef struct ot_prediction {
  ot_cluster cluster;  // as the ranks of the run find it (ot_cluster_share)
  const char *note;    // what was made of what was measured; null: it was measured so
  const char *doubt;   // what was measured badly; null: nothing
  const char *basis;   // what MFU is a share of
  ot_dtype products;   // the type that the run computes in
  double peak_flops;   // of all ranks, in that type
  int more_rounds;     // of experts, behind the first one
  int num_stages;
  const ot_schedule **schedules;  // [num_stages] of one rank of each stage
  ot_predicted_memory memory;
  int num_steps;
  ot_predicted_step *steps;  // [num_steps] those with run->batch.global_batch_size first
} ot_prediction;

// OT_USAGE where the cluster lacks a rate or has fewer devices than the run has ranks. Lives in
// `arena`. For one rank to call.
ot_status ot_prediction_build(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out);

// The steps with so many micro-batches, or null.
const ot_predicted_step *ot_prediction_find(const ot_prediction *prediction, int micro_batches);

// Lets go of everything but the steps, which are moved to `arena`.
void ot_prediction_keep_steps(ot_prediction *prediction, ot_arena *arena);

// Replays a step of `micro_batches` once more: the timelines of the stages [num_stages], in
// `arena`.
ot_status ot_prediction_replay(const ot_prediction *prediction, int micro_batches, ot_arena *arena,
                               ot_timeline *timelines);
