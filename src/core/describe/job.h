// SPDX-License-Identifier: Apache-2.0
// The planner's task: a model, trained by a framework with a precision recipe on a cluster, with a
// global batch of a given number of sequences and tokens. Given degrees are fixed, others searched.
#pragma once

#include <stdbool.h>

#include "describe/cluster.h"
#include "describe/engine.h"
#include "describe/model.h"
#include "describe/recipe.h"
#include "describe/run.h"

struct ot_teacher_pricer;

// The axis whose ranks are on different kinds of device of a mixed cluster (estimate/crossing.h).
typedef enum ot_crossing {
  OT_CROSSES_NOTHING,  // one kind of device
  OT_CROSSES_PP,       // stages are on different kinds
  OT_CROSSES_DP,       // replicas are
} ot_crossing;

// Spellings of ot_crossing, null after the last; of OT_CROSSES_NOTHING null.
extern const char *const ot_crossing_names[];

// Parallel configuration of a step; fields of 0 (enumerations: -1) in a job are searched. devices =
// tp x pp x cp x dp; dp = dp_replicate x dp_shard. Expert ranks are ranks of a stage
// (describe/mesh.h).
typedef struct ot_candidate {
  int tp, pp, vpp, cp, ep, etp;  // >= 1
  int dp;                        // >= 1
  int dp_shard;                  // ranks that shard weights and states; divides dp. Ignored with
                                 // zero 0
  int zero;                      // [0, 3]
  int64_t micro_batch_size;      // sequences, >= 1
  int64_t micro_batches;         // per step and dp rank, >= 1; with OT_CROSSES_DP the mean over dp
                                 // ranks, rounded up
  ot_pipeline pipeline;
  ot_recompute recompute;
  ot_module_set modules;      // of selective recompute; empty: as the engine has it. In a job:
                              // searched
  bool no_sequence_parallel;  // activations between tp regions are not sharded
  ot_crossing crosses;
} ot_candidate;

struct ot_job;

// A factor for the times of a step, which the estimate does not know itself (advise/calibrate.h).
typedef struct ot_step_correction {
  double (*factor)(const void *context, const struct ot_job *job, const ot_candidate *candidate);
  const void *context;
  double least;  // of all factors
} ot_step_correction;

typedef struct ot_job {
  const ot_model *model;
  const ot_cluster *cluster;
  const ot_engine *engine;
  ot_recipe recipe;           // bytes of a parameter and its states, GEMM dtype
  int devices;                // >= 1, with those of a teacher at most cluster->num_devices
  int64_t global_batch_size;  // sequences per step, >= 1
  int64_t sequence_length;    // tokens, >= 1
  double tokens;              // whole run; 0 = unknown
  double expert_imbalance;    // engine orthant: load of the busiest ep rank over the mean; 0: 1
  double stretch;        // kernel slowdown by shared cores (ot_simulation); 0: from the cluster
  double memory_margin;  // share of the estimated memory that plans leave free in addition to it
  const ot_step_correction *correction;  // of all estimates, from outside; null: none
  const ot_run *run;  // engine orthant: settings other than degrees (optimizer, ...)
  // Price of a live teacher of `run` (simulate/teacher_price.h); null: it is not priced.
  const struct ot_teacher_pricer *teacher;
  ot_candidate given;  // fixed degrees; 0 and -1 are searched
  bool even_chunks;    // searched: only pipelines whose chunks have equal numbers of layers
  // Layers of each pipeline chunk, in model order, of candidates with `num_chunks` chunks; 0: the
  // engine divides them.
  const int *chunk_layers;  // [num_chunks]
  int num_chunks;
} ot_job;

// Whether estimates include a live teacher.
bool ot_job_has_teacher(const ot_job *job);

// Its devices and those that a teacher has for itself (ot_run_teacher_ranks).
int ot_job_all_devices(const ot_job *job);

// Passes of micro-batches through chunks of a pipeline that a plan follows: all of a step are
// replayed, in about 100 bytes each.
enum { OT_MOST_PASSES = 1 << 20 };

// Micro-batches per step on one dp rank, or 0 if they are not whole.
int64_t ot_candidate_micro_batches(const ot_job *job, const ot_candidate *candidate);

// Whether its 1F1B pairs forwards and backwards to hide the exchange of tokens: with several chunks
// per stage or no stages, and if the exchange is not recomputed (ot_engine.overlap_expert).
bool ot_candidate_pairs(const ot_engine *engine, const ot_candidate *candidate);

// Single-entry lists of a run.
typedef struct ot_run_lists {
  ot_recompute recompute;
  ot_recompute_module modules[OT_RECOMPUTE_MODULES];
  bool reshard;
} ot_run_lists;

// The run that trains `candidate` with engine orthant. Settings that the degrees do not determine
// come from job->run; without one, defaults.
//   lists  kept by `out`
void ot_candidate_run(const ot_job *job, const ot_candidate *candidate, ot_run_lists *lists,
                      ot_run *out);

// "128", or "128 (8 replicas x 16 shards)" if states are sharded over 16 ranks with 8 replicas.
int64_t ot_candidate_print_dp(const ot_candidate *candidate, char *out, int64_t capacity);

// "16 x 1": 16 micro-batches of one sequence per dp rank.
int64_t ot_candidate_print_batch(const ot_candidate *candidate, char *out, int64_t capacity);

// "selective (layernorm, moe_act)".
int64_t ot_candidate_print_recompute(const ot_candidate *candidate, char *out, int64_t capacity);

// "tp 8 pp 16 vpp 1 cp 1 ep 1 dp 128 (8 replicas x 16 shards) zero 1, micro-batches 16 x 1, 1f1b,
// recompute none".
int64_t ot_candidate_print(const ot_candidate *candidate, char *out, int64_t capacity);

// Whether the software takes the chunks of `candidate` only as a list of the layers of each, which
// a person has to write and read: Megatron-LM, unless all have the same number.
bool ot_candidate_lists_layers(const ot_job *job, const ot_candidate *candidate);

// < 0 if `a` is simpler than `b`: no list of layers, fewer axes, a more common pipeline schedule,
// less sharding and recompute.
int ot_candidate_compare_effort(const ot_job *job, const ot_candidate *a, const ot_candidate *b);

// A total order independent of the machine, to break ties.
int ot_candidate_compare(const ot_candidate *a, const ot_candidate *b);

// Moments that each parameter has at least (ot_run_moments).
int ot_job_moments(const ot_job *job);
