// SPDX-License-Identifier: Apache-2.0
// The values of an estimate: times of a step, memory, stages, chunks and replayed actions.
#pragma once

#include "describe/job.h"
#include "pipeline/pipeline_schedule.h"
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

// Lower bounds of an estimate (search/bound.h).
typedef struct ot_estimate_bound {
  double step_s;
  int64_t peak;
} ot_estimate_bound;
