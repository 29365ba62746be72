// SPDX-License-Identifier: Apache-2.0
// What is to be planned: a model, trained by some software in some precision on a cluster, so many
// sequences of so many tokens a step. Degrees that are given are fixed; the others are searched.
#pragma once

#include <stdbool.h>

#include "describe/cluster.h"
#include "describe/engine.h"
#include "describe/model.h"
#include "describe/run.h"
#include "plan/recipe.h"

// How a step is split; a field of 0 (enumerations: -1) in a job is searched. devices = tp x pp x cp
// x dp; dp = dp_replicate x dp_shard, and experts fold over the ranks of a stage (describe/mesh.h).
typedef struct ot_candidate {
  int tp, pp, vpp, cp, ep, etp;  // >= 1
  int dp;                        // >= 1
  int dp_shard;                  // ranks that weights and states are cut over; divides dp. Zero 0:
                                 // not looked at
  int zero;                      // [0, 3]
  int64_t micro_batch_size;      // sequences, >= 1
  int64_t micro_batches;         // of a step on one rank of dp, >= 1
  ot_pipeline pipeline;
  ot_recompute recompute;
  bool no_sequence_parallel;  // tensor parallelism keeps whole activations between its regions
} ot_candidate;

typedef struct ot_job {
  const ot_model *model;
  const ot_cluster *cluster;
  const ot_engine *engine;
  ot_recipe recipe;           // bytes of a parameter and its states, type of products
  int devices;                // >= 1, at most cluster->num_devices
  int64_t global_batch_size;  // sequences of a step, >= 1
  int64_t sequence_length;    // tokens, >= 1
  double tokens;              // of the whole run; 0 = not known
  double expert_imbalance;    // engine orthant: load of the busiest rank of ep over the mean; 0: 1
  double stretch;     // of kernels, whose ranks share cores (ot_simulation); 0: as the cluster says
  const ot_run *run;  // engine orthant: settings that the degrees do not say (optimizer, ...)
  ot_candidate given;  // degrees that are fixed; 0 and -1 are searched
} ot_job;

// OT_USAGE for values that are missing, out of range, or that do not go together.
ot_status ot_job_check(const ot_job *job);

// Sequences of a step on one rank of dp in whole micro-batches, or 0 when they are not whole.
int64_t ot_candidate_micro_batches(const ot_job *job, const ot_candidate *candidate);

// Whether `candidate` can run `job`: degrees against the model, sequence, batch and devices.
// OT_USAGE naming what does not fit and the nearest that does.
ot_status ot_candidate_check(const ot_job *job, const ot_candidate *candidate);

// Lists of a run that have one entry.
typedef struct ot_run_lists {
  ot_recompute recompute;
  bool reshard;
} ot_run_lists;

// The run that trains `candidate`: what the engine orthant would be told. Of job->run it keeps what
// the degrees do not say; without one, defaults.
//   lists  kept by `out`
void ot_candidate_run(const ot_job *job, const ot_candidate *candidate, ot_run_lists *lists,
                      ot_run *out);

// "128", or "128 (8 replicas x 16 shards)" where states are sharded over 16 ranks and 8 hold
// copies.
int64_t ot_candidate_print_dp(const ot_candidate *candidate, char *out, int64_t capacity);

// "16 x 1": 16 micro-batches of one sequence for each rank of dp.
int64_t ot_candidate_print_batch(const ot_candidate *candidate, char *out, int64_t capacity);

// "tp 8 pp 16 vpp 1 cp 1 ep 1 dp 128 (8 replicas x 16 shards) zero 1, micro-batches 16 x 1, 1f1b,
// recompute none".
int64_t ot_candidate_print(const ot_candidate *candidate, char *out, int64_t capacity);

// A total order that does not depend on the machine: for ties.
int ot_candidate_compare(const ot_candidate *a, const ot_candidate *b);

// Moments that each parameter has at least: 2 with AdamW, 1 with Muon.
int ot_job_moments(const ot_job *job);
