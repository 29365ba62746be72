// SPDX-License-Identifier: Apache-2.0
// What a candidate takes: seconds of a step, by term, and bytes of its fullest rank, by class. The
// tasks of each distinct block come from the builders of schedules and are priced by the simulator;
// here they are put together: blocks to chunks, chunks to the order of the pipeline, replayed as
// events, and what stands around it (gathers, reductions, norm, update).
#pragma once

#include "base/arena.h"
#include "plan/job.h"
#include "schedule/timeline.h"

// Bytes of the rank that needs most.
typedef struct ot_memory_estimate {
  int stage;  // of that rank
  int64_t weights, gradients, optimizer;
  int64_t activations;  // kept from forward to backward
  int64_t gathered;     // weights that stand elsewhere
  int64_t buffers;      // scratch, messages, batches, buckets on their way
  int64_t peak;         // all of these: what is allocated
  int64_t reserved;     // with what the engine's allocator loses
  int64_t context;      // of the device's runtime and the communication library, beside it
  int64_t capacity;     // of the device
} ot_memory_estimate;

typedef struct ot_estimate {
  ot_candidate candidate;
  double step_s;
  // Where it goes; on the slowest stage, these add up to step_s.
  double compute_s;                    // kernels of forward and backward, recompute included
  double recompute_s;                  // part of compute_s
  double update_s;                     // norm, clipping, optimizer
  double bubble_s;                     // waiting for other stages
  double host_s;                       // launching kernels, where devices wait for that
  double exposed_s[OT_TIMELINE_AXES];  // communication that nothing hides
  double bubble_fraction;
  double model_flops;     // of the whole step, causal attention counts half
  double hardware_flops;  // recompute included
  double mfu, hfu;        // of the devices' peak in recipe.products
  double tokens_per_s;    // of all devices
  ot_memory_estimate memory;
  bool fits;  // reserved + context <= capacity
} ot_estimate;

// One stage of the pipeline, for charts of memory and time.
typedef struct ot_stage_estimate {
  int first_block, num_blocks;   // of its first chunk; of all its chunks
  double forward_s, backward_s;  // of a micro-batch
  ot_memory_estimate memory;
} ot_stage_estimate;

// Prices that candidates share (blocks by tp, cp, micro-batch size, recompute) are kept from call
// to call.
typedef struct ot_estimator ot_estimator;

// `job` is kept. Lives in `arena`. OT_USAGE as ot_job_check, or when the cluster lacks a rate.
ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out);

// `candidate` must have passed its check. Cost: O(stages x chunks x micro-batches) once the prices
// of its blocks are known.
ot_status ot_estimate_build(ot_estimator *estimator, const ot_candidate *candidate,
                            ot_estimate *out);

// The same, but where memory does not fit, the step need not be replayed: then all but memory may
// be zero.
ot_status ot_estimate_fitting(ot_estimator *estimator, const ot_candidate *candidate,
                              ot_estimate *out);

// The stages of the pipeline [candidate->pp], in `arena`.
ot_status ot_estimate_stages(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_stage_estimate **out);

// What a stage does at a time, as the step was replayed.
typedef enum ot_replayed_kind {
  OT_REPLAYED_FORWARD,
  OT_REPLAYED_BACKWARD,  // with its recompute; where it is split, of inputs only
  OT_REPLAYED_WEIGHT,    // where the backward is split
  OT_REPLAYED_UPDATE,    // from where all stages meet: norm, clipping, optimizer, gathers after it
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
  ot_replayed_action *actions;  // [num_actions] of a stage in order
} ot_replayed_step;

// The step of `candidate`, action by action, in `arena`.
ot_status ot_estimate_replay(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_replayed_step *out);

// Figures that no schedule of `candidate` can beat, at a fraction of the cost: step_s is at least
// compute of the busiest stage, and the peak at least what states and one micro-batch take. For
// pruning: tests hold them against ot_estimate_build.
typedef struct ot_estimate_bound {
  double step_s;
  int64_t peak;
} ot_estimate_bound;

ot_status ot_estimate_bound_build(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_estimate_bound *out);
