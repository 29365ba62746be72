// SPDX-License-Identifier: Apache-2.0
// The predicted steps of a run on a described cluster: one rank per stage is planned and simulated
// (simulate/simulate.h) before the first step, so that every line of metrics has the prediction
// next to the measurement. Ranks of a stage run in step, so one represents all.
#pragma once

#include "describe/cluster.h"
#include "describe/mesh.h"
#include "describe/run.h"
#include "record/step_means.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"
#include "simulate/teacher_price.h"

typedef struct ot_prediction_request {
  const ot_run *run;
  const ot_mesh *mesh;  // null: one rank
  const ot_cluster *cluster;
  int threads;              // per rank, >= 1
  int local_ranks;          // of the run on one machine; 0: all
  double expert_imbalance;  // load of the busiest rank of ep over the mean; 0: balanced
  double expert_passes;     // measured: mean of a layer and micro-batch; 0: by expert_imbalance
} ot_prediction_request;

// Steps with a given number of micro-batches.
typedef struct ot_predicted_step {
  int micro_batches;
  ot_step_figures expected;
  double teacher_s;    // of these: the step waits for the teacher
  double model_flops;  // of all ranks, without the teacher
  double stretch;      // slowdown of kernels when ranks share cores (simulate/shared_cores.h)
} ot_predicted_step;

// Memory in bytes of the rank that needs most.
typedef struct ot_predicted_memory {
  int rank;                   // from mesh->ranks: of a teacher on ranks of its own
  ot_memory_breakdown arena;  // the planned one
  int64_t teacher;            // next to it, or without it
  int64_t context;            // of the device's runtime and communicators, in addition to the arena
  int64_t capacity;           // of the device
  bool fits;                  // all three <= capacity
} ot_predicted_memory;

typedef struct ot_prediction {
  ot_cluster cluster;  // as seen by the ranks of the run (ot_cluster_share)
  const char *note;    // how measurements were scaled; null: used as measured
  const char *doubt;   // unreliable measurements; null: none
  const char *basis;   // reference of MFU
  ot_dtype products;   // the compute dtype of the run
  double peak_flops;   // of all ranks, a teacher's included, in that dtype
  double more_rounds;  // overflow passes of experts, after the first pass: the mean
  double more_rows;    // of ot_simulation
  // A live teacher. What the model writes for reverse_kl is not priced.
  ot_teacher_price teacher;
  int teacher_ranks;  // its own; 0: the ranks with the head
  double publish_s;   // of a run that learns from rewards: its weights to generators, after a step
  int num_stages;
  const ot_schedule **schedules;  // [num_stages] of one rank of each stage
  ot_predicted_memory memory;
  int num_steps;
  ot_predicted_step *steps;  // [num_steps] those with run->batch.global_batch_size first
} ot_prediction;

// OT_USAGE if a run on `backend` cannot be predicted from `cluster`: a measured machine stands for
// the device that was measured.
ot_status ot_prediction_check(const ot_cluster *cluster, ot_backend backend);

// OT_USAGE if the cluster lacks a rate or has fewer devices than the run has ranks. Allocated in
// `arena`. Called on one rank.
ot_status ot_prediction_build(const ot_prediction_request *request, ot_arena *arena,
                              ot_prediction *out);

// The steps with `micro_batches` micro-batches, or null.
const ot_predicted_step *ot_prediction_find(const ot_prediction *prediction, int micro_batches);

// Releases everything but the steps, which move to `arena`.
void ot_prediction_keep_steps(ot_prediction *prediction, ot_arena *arena);

// Simulates a step of `micro_batches` again: the timelines of the stages [num_stages], in `arena`.
ot_status ot_prediction_replay(const ot_prediction *prediction, int micro_batches, ot_arena *arena,
                               ot_timeline *timelines);
// The same of a micro-batch of validation, in a run that has validation data.
ot_status ot_prediction_replay_validation(const ot_prediction *prediction, ot_arena *arena,
                                          ot_timeline *timelines);
// The same of the order that publishes the weights, where there is one.
ot_status ot_prediction_replay_publish(const ot_prediction *prediction, ot_arena *arena,
                                       ot_timeline *timelines);
