// SPDX-License-Identifier: Apache-2.0
// The search space: all valid parallel configurations. Private to the planner.
//
//   tp x pp x cp x dp = devices   every ordered factorisation
//   micro_batch_size              every divisor of the sequences of a dp rank
//   pipeline, vpp                 every schedule; interleaved with every number of chunks from 2
//                                 to blocks / pp, all or those that divide the layers evenly
//                                 (ot_job.even_chunks). One stage: only 1f1b
//   zero, dp_shard                0, or 1 to 3 over every divisor of dp above 1. Over one rank all
//                                 ZeRO stages are equal: only 0
//   recompute                     none, selective, full; with the modules that the engine has, the
//                                 three sets of recompute_sets (space.c)
//
//   ep                            every divisor of the experts that divides tp x cp x dp
//
// A field that the job fixes has only that value; etp defaults to 1. Nothing is left out by a
// heuristic. Rules (ot_candidate_check) depend on parts of a candidate: the sharding of a
// micro-batch, the pipeline schedule, the sharding of weights. Each part is checked once, in a job
// with only this part, and candidates are the products of the valid parts.
#pragma once

#include "base/arena.h"
#include "describe/job.h"

typedef struct ot_order_choice {
  ot_pipeline pipeline;
  int vpp;
} ot_order_choice;

typedef struct ot_shard_choice {
  int zero, dp_shard;
} ot_shard_choice;

typedef struct ot_recompute_choice {
  ot_recompute mode;
  ot_module_set modules;
} ot_recompute_choice;

enum { OT_MAX_RECOMPUTES = 8 };

// Candidates that differ only in schedule, sharding and recompute: all combinations are valid.
typedef struct ot_space_group {
  ot_candidate base;  // degrees and micro-batches
  int degrees;        // index of the degrees
  int num_orders, num_shards;
  const ot_order_choice *orders;  // [num_orders]
  const ot_shard_choice *shards;  // [num_shards]
} ot_space_group;

// A part that the rules reject.
typedef struct ot_refusal {
  ot_candidate candidate;  // an example with this part
  const char *reason;      // message of ot_candidate_check
} ot_refusal;

// Parts of a candidate that rules depend on.
typedef enum ot_space_part {
  OT_PART_BATCH,   // micro-batches of a rank
  OT_PART_SIZE,    // sharding of a micro-batch
  OT_PART_ORDER,   // pipeline schedule
  OT_PART_SHARDS,  // sharding of weights
  OT_PARTS,
} ot_space_part;

enum { OT_MAX_REFUSALS = 3 };

typedef struct ot_space {
  int num_degrees;        // that groups have
  ot_stable_list groups;  // of ot_space_group
  int num_recomputes;
  ot_recompute_choice recompute[OT_MAX_RECOMPUTES];  // [num_recomputes] for every group
  int64_t num_candidates;                            // including rejected ones
  int64_t num_refused;
  int num_refusals[OT_PARTS];
  ot_refusal refusals[OT_PARTS][OT_MAX_REFUSALS];  // the first ones, each reason once
} ot_space;

static inline const ot_space_group *ot_space_group_at(const ot_space *space, int64_t index) {
  return ot_stable_list_at(&space->groups, index);
}

// `job` must have passed its check. In `arena`.
void ot_space_build(const ot_job *job, ot_arena *arena, ot_space *out);

// Range of chunks per stage to try with `kind`: at most one per layer, embedding and head.
void ot_space_chunks(const ot_job *job, ot_pipeline kind, int pp, int *first, int *last);

// One candidate of a group.
ot_candidate ot_space_candidate(const ot_space_group *group, ot_order_choice order,
                                ot_shard_choice shard, ot_recompute_choice recompute);
