// SPDX-License-Identifier: Apache-2.0
// Estimate of a candidate: seconds of a step, by term, and bytes of its fullest rank, by class. The
// schedule builders make the tasks of each distinct block and the simulator prices them. The
// estimate assigns blocks to chunks, replays the pipeline schedule as events, and adds gathers,
// reductions, norm and update.
#pragma once

#include "base/arena_pool.h"
#include "pipeline/pipeline_schedule.h"
#include "describe/job.h"
#include "schedule/timeline.h"

// Memory of the fullest rank in bytes: of its device.
typedef struct ot_memory_estimate {
  int stage;  // of that rank; after the last stage: a teacher's own rank
  int64_t weights, gradients, optimizer;
  int64_t activations;  // saved from forward to backward
  int64_t gathered;     // weights of other ranks
  int64_t buffers;      // scratch, messages, batches, buckets in flight
  int64_t teacher;      // weights and activations of a live teacher
  int64_t peak;         // sum of all above: allocated bytes
  int64_t reserved;     // peak plus losses of the engine's allocator
  int64_t context;      // device runtime and communication library, not in reserved
  int64_t capacity;     // of the device
  int64_t allowed;      // the same, less the job's margin
} ot_memory_estimate;

// The limit that `memory` exceeds: the capacity, or what the margin leaves of it.
static inline int64_t ot_memory_limit(const ot_memory_estimate *memory) {
  const bool over = memory->reserved + memory->context > memory->capacity;
  return over ? memory->capacity : memory->allowed;
}

// The part of a pool of a mixed cluster.
typedef struct ot_pool_estimate {
  int stages, replicas;       // in the pool
  int layers;                 // of all its stages
  int64_t micro_batches;      // of each replica
  ot_memory_estimate memory;  // of its fullest rank
} ot_pool_estimate;

typedef struct ot_estimate {
  ot_candidate candidate;
  double step_s;
  // Terms of step_s; on the slowest stage they add up to it.
  double compute_s;                    // kernels of forward and backward, recompute included
  double recompute_s;                  // part of compute_s
  double update_s;                     // norm, clipping, optimizer
  double bubble_s;                     // waiting for other stages
  double host_s;                       // kernel launches that devices wait for
  double teacher_s;                    // waiting for a live teacher
  double exposed_s[OT_TIMELINE_AXES];  // communication that no computation hides
  double bubble_fraction;
  double model_flops;     // whole step; half of the scores in causal attention
  double hardware_flops;  // recompute included
  double mfu, hfu;        // fraction of the devices' peak in recipe.products
  double tokens_per_s;    // all devices together
  ot_memory_estimate memory;
  bool fits;                             // reserved + context <= allowed, on all devices
  ot_pool_estimate pools[OT_MAX_POOLS];  // of a mixed cluster
} ot_estimate;

// One stage of the pipeline, for charts of memory and time.
typedef struct ot_stage_estimate {
  int first_block, num_blocks;   // of its first chunk; of all its chunks
  double forward_s, backward_s;  // one micro-batch
  ot_memory_estimate memory;
} ot_stage_estimate;

// Time of one micro-batch in a chunk, by term: total_s is the sum of the others.
typedef struct ot_work_estimate {
  double total_s, compute_s, host_s;
  double exposed_s[OT_TIMELINE_AXES];
} ot_work_estimate;

// One chunk of the pipeline, for explanations of its actions.
typedef struct ot_chunk_estimate {
  int stage, first_block, num_blocks;
  ot_work_estimate work[OT_WORKS];  // of a micro-batch after the first
  double recompute_s;               // part of the backward's compute_s
  double matrix_flops;              // of a micro-batch on one rank, all works
} ot_chunk_estimate;

// Costs that candidates share (blocks by tp, cp, micro-batch size, recompute) are cached between
// calls.
typedef struct ot_estimator ot_estimator;

// Keeps `job`. Allocated in `arena`. OT_USAGE as ot_job_check, or if the cluster lacks a rate.
ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out);

// Memory of one call of the estimator, which others may use between its calls.
ot_arena_pool *ot_estimator_scratch(ot_estimator *estimator);

// `candidate` must have passed its check. Cost: O(stages x chunks x micro-batches) once the prices
// of its blocks are known.
ot_status ot_estimate_build(ot_estimator *estimator, const ot_candidate *candidate,
                            ot_estimate *out);

// The same, but if memory does not fit, the step may be left out: then all but memory may be zero.
ot_status ot_estimate_fitting(ot_estimator *estimator, const ot_candidate *candidate,
                              ot_estimate *out);

// The slowdown of the kernels of `candidate` on a measured machine whose ranks share cores, from
// the schedules of its run; for ot_job.stretch. Engine orthant.
ot_status ot_estimator_stretch(ot_estimator *estimator, const ot_candidate *candidate,
                               double *stretch);

// Layers of each chunk of the pipeline, in model order, in `arena`.
//   out  [num_chunks]
ot_status ot_estimate_chunks(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, int **out, int *num_chunks);

// Estimates of the pipeline stages [candidate->pp], in `arena`.
ot_status ot_estimate_stages(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_stage_estimate **out);

// Estimates of the chunks of the pipeline, in model order, in `arena`.
ot_status ot_estimate_chunk_works(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_arena *arena, ot_chunk_estimate **out, int *num_chunks);

// Kind of an action in a replayed step.
typedef enum ot_replayed_kind {
  OT_REPLAYED_FORWARD,
  OT_REPLAYED_BACKWARD,  // with its recompute; if split, gradients of inputs only
  OT_REPLAYED_WEIGHT,    // gradients of weights, if the backward is split
  OT_REPLAYED_UPDATE,    // after the last barrier: norm, clipping, optimizer, gathers
  OT_REPLAYED_KINDS,
} ot_replayed_kind;

typedef struct ot_replayed_action {
  int32_t stage, chunk;
  int32_t micro_batch;  // -1: none
  ot_replayed_kind kind;
  double start_s, end_s;
} ot_replayed_action;

typedef struct ot_replayed_step {
  double total_s;
  int64_t num_actions;
  ot_replayed_action *actions;  // [num_actions] in order per stage
} ot_replayed_step;

// The replayed step of `candidate`, in `arena`.
ot_status ot_estimate_replay(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_replayed_step *out);

// Lower bounds for any schedule of `candidate`, at a fraction of the cost of an estimate: step_s is
// at least the compute of the busiest stage, peak at least the states and one micro-batch. Used for
// pruning; tests compare them with ot_estimate_build.
typedef struct ot_estimate_bound {
  double step_s;
  int64_t peak;
} ot_estimate_bound;

ot_status ot_estimate_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_estimate_bound *out);
