// SPDX-License-Identifier: Apache-2.0
// Framework-specific part of an estimate. There are two implementations: Orthant, whose figures are
// those of the schedules that it builds, and other frameworks, whose figures follow from their
// engine files. A job has one of them; no other file of the planner depends on the framework.
// Private to estimate/ and search/.
#pragma once

#include "estimate/estimator.h"
#include "schedule/block_phases.h"

// Lower bounds for the gradient reductions, weight gathers and update of one block. Latencies and
// bytes of the collectives only; estimates add the kernels around them.
typedef struct ot_sum_bound {
  double reduce_s;           // after the last micro-batch
  double reduce_each_s;      // after each micro-batch before
  double gradient_gather_s;  // all-gather after the last reduction, if nothing is sharded
  double gather_s;           // one all-gather of sharded weights
  double reduce_load_s, reduce_each_load_s, gather_load_s;  // of these, ot_price.load_s
  double end_s;  // after all reductions: update, and all-gather of weights
} ot_sum_bound;

// The bounds of a layer outside the expert view, and of its block in it, if that is separate.
typedef struct ot_shard_bound {
  ot_sum_bound view[2];
  bool regathers;  // gathers in every pass through the block
} ot_shard_bound;

struct ot_framework {
  // Whether the engine can run such jobs. OT_USAGE names what it does not support.
  ot_status (*check_job)(const ot_job *job);

  // Whether `run`, the candidate as a run of Orthant, can be trained; may change the run.
  ot_status (*check_run)(const ot_job *job, const ot_candidate *candidate, ot_run *run);

  // The candidate whose graphs and segments are built to price `candidate`.
  ot_candidate (*built)(const ot_candidate *candidate);

  // Assigns blocks to chunks and chunks to stages: fills out->stages. `run` is the candidate's run
  // and may be changed.
  ot_status (*partition)(ot_estimator *estimator, const ot_candidate *candidate, ot_run *run,
                         ot_stage_partition *out);

  // Whether modules are recomputed by their own kernels only, not on the way of a gradient.
  bool separate_recompute;

  // Cost of the recompute before a block's backward.
  ot_status (*price_recompute)(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_block_phases *from, ot_phase_price *out);

  // Adds to the micro-batch cost of blocks of `kind` what the built blocks lack: what ep needs, and
  // casts of what is saved.
  ot_status (*add_missing)(const ot_estimator *estimator, const ot_prices *prices, int kind,
                           ot_block_price *to);

  // Fills the cost of reductions, gathers and optimizer for each kind of block, and of the step's
  // frame (tie, begin, clip).
  ot_status (*price_sums)(const ot_estimator *estimator, const ot_step_phases *phases,
                          ot_arena *scratch, ot_prices *prices);

  // Bounds for a block of `elements` parameters on one rank, in the expert view or outside it, with
  // zero and dp_shard of `candidate`. `out` is zero.
  ot_status (*bound_sums)(const ot_estimator *estimator, const ot_candidate *candidate,
                          bool experts, double elements, ot_sum_bound *out);

  // Adds the bytes of one rank of each stage.
  //   out  [stages] zero except stage and capacity
  void (*count_memory)(const ot_replay_request *request, ot_arena *arena, ot_memory_estimate *out);

  // Whether activations and buckets have preallocated buffer slots for the largest number in use at
  // once. If not, an allocator reuses freed memory.
  bool has_places;

  // Lower bounds of the activations saved of a micro-batch, and of temporaries, for blocks of
  // `kind`.
  //   slot_bytes  [OT_SLOT_CLASSES]
  void (*bound_slots)(const ot_estimator *estimator, const ot_prices *prices, int kind,
                      int64_t *slot_bytes, int64_t *scratch_bytes);

  // The largest number of ranks that the states of a parameter are sharded over, in the expert view
  // (graph.h) or outside it.
  double (*bound_shards)(const ot_estimator *estimator, const ot_candidate *candidate,
                         bool experts);
};

extern const ot_framework ot_framework_scheduled;  // Orthant
extern const ot_framework ot_framework_described;  // a file of presets/engines or of the user

// The framework of `engine`.
const ot_framework *ot_framework_of(const ot_engine *engine);

// ---- parts of framework_described.c, in described_memory.c ----

// As count_memory and bound_slots.
void ot_described_memory(const ot_replay_request *request, ot_arena *arena,
                         ot_memory_estimate *out);
void ot_described_bound_slots(const ot_estimator *estimator, const ot_prices *prices, int kind,
                              int64_t *slot_bytes, int64_t *scratch_bytes);

// Peak of saved activations on each stage.
//   peak  [stages] bytes, zero before
void ot_described_peaks(const ot_replay_request *request, ot_arena *arena, double *peak);

// Ranks that hold the same experts (edp): the group of the expert gradients' reductions.
ot_group_shape ot_described_expert_replicas(const ot_estimator *estimator,
                                            const ot_candidate *candidate);
