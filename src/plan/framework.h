// SPDX-License-Identifier: Apache-2.0
// What an estimate asks of the software that runs a step. There are two answers: this program,
// whose figures are those of the schedules that it builds, and frameworks, whose figures follow
// from what their engine files say. A job has one of them; nothing else in plan/ asks whose
// software it is. Private to plan/.
#pragma once

#include "plan/estimator.h"
#include "schedule/block_phases.h"

// What sums of gradients, gathers of weights and the update of one layer take at least. Latencies
// and bytes of the collectives alone; kernels around them come on top in estimates.
typedef struct ot_shard_bound {
  double reduce_s;       // after the last micro-batch
  double reduce_each_s;  // after each one before
  double spread_s;       // after the last sum, where nothing is sharded
  double gather_s;       // of weights that other ranks hold, each time
  double end_s;          // after all sums: the update, and weights gathered then
  bool regathers;        // for every pass through the layer
} ot_shard_bound;

struct ot_framework {
  // Whether the engine can run such jobs. OT_USAGE naming what it does not do.
  ot_status (*check_job)(const ot_job *job);

  // Whether `run`, the candidate as a run of this program, can be trained; may change the run.
  ot_status (*check_run)(const ot_job *job, const ot_candidate *candidate, ot_run *run);

  // The candidate whose graphs and segments are built to price `candidate`.
  ot_candidate (*built)(const ot_candidate *candidate);

  // Assigns blocks to chunks and chunks to stages: fills out->stages. `run` is that of the
  // candidate and may be changed.
  ot_status (*partition)(ot_estimator *estimator, const ot_candidate *candidate, ot_run *run,
                         ot_stage_partition *out);

  // What a block recomputes before its backward.
  ot_status (*price_recompute)(const ot_estimator *estimator, const ot_prices *prices,
                               const ot_block_phases *from, ot_phase_price *out);

  // Adds to the price of a micro-batch in blocks of `kind` what ep does and the built blocks lack.
  ot_status (*add_experts)(const ot_estimator *estimator, const ot_prices *prices, int kind,
                           ot_block_price *to);

  // Fills what sums, gathers and the optimizer take of each kind of block, and what stands around
  // them (tie, begin, clip).
  ot_status (*price_sums)(const ot_estimator *estimator, const ot_step_phases *phases,
                          ot_arena *scratch, ot_prices *prices);

  // Of a layer of `elements` parameters on one rank; zero and dp_shard as `candidate` says. `out`
  // is zero, but for `regathers`.
  ot_status (*bound_sums)(const ot_estimator *estimator, const ot_candidate *candidate,
                          double elements, ot_shard_bound *out);

  // Adds the bytes of one rank of each stage.
  //   out  [stages] zero, but for stage and capacity
  void (*count_memory)(const ot_replay_request *request, ot_arena *arena, ot_memory_estimate *out);

  // Whether activations and buckets have places of their own, as many as are in use at once; else
  // an allocator gives what one has let go to another.
  bool has_places;

  // At least what a block of `kind` keeps of a micro-batch, and needs while it is worked on.
  //   slot_bytes  [OT_SLOT_CLASSES]
  void (*bound_slots)(const ot_estimator *estimator, const ot_prices *prices, int kind,
                      int64_t *slot_bytes, int64_t *scratch_bytes);

  // The most ranks that the states of a parameter are sharded over, in the expert view (graph.h) or
  // not.
  double (*bound_shards)(const ot_estimator *estimator, const ot_candidate *candidate,
                         bool experts);
};

extern const ot_framework ot_framework_scheduled;  // this program
extern const ot_framework ot_framework_described;  // a file of presets/engines or of the user

// That of `engine`.
const ot_framework *ot_framework_of(const ot_engine *engine);

// ---- parts of framework_described.c, in described_memory.c ----

// As count_memory and bound_slots.
void ot_described_memory(const ot_replay_request *request, ot_arena *arena,
                         ot_memory_estimate *out);
void ot_described_bound_slots(const ot_estimator *estimator, const ot_prices *prices, int kind,
                              int64_t *slot_bytes, int64_t *scratch_bytes);

// The most activations that each stage keeps at once.
//   peak  [stages] bytes, zero before
void ot_described_peaks(const ot_replay_request *request, ot_arena *arena, double *peak);

// Ranks that hold the same experts: those that their gradients are summed over.
ot_group_shape ot_described_expert_replicas(const ot_candidate *candidate);
