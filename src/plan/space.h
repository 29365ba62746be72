// SPDX-License-Identifier: Apache-2.0
// What there is to search: every way to split a job that is a way at all. Private to plan/.
//
//   tp x pp x cp x dp = devices   every ordered factorisation
//   micro_batch_size              every divisor of the sequences of a rank of dp
//   pipeline, vpp                 every order; interleaved with every number of chunks from 2 to
//                                 blocks / pp. One stage has no order: 1f1b stands for all
//   zero, dp_shard                0, or 1 to 3 over every divisor of dp above 1. Over one rank all
//                                 stages of ZeRO are the same: 0 stands for all
//   recompute                     none, selective, full
//
//   ep                            every divisor of the experts that divides tp x cp x dp
//
// A field that the job gives is that and nothing else; etp that is not given is 1. Nothing is left
// out because it is not likely to be good. Rules (ot_candidate_check) look at parts of a candidate:
// at what cuts a micro-batch, at the order, at what cuts the weights. So each part is asked about
// once, as a job that has nothing but this part, and candidates are the products.
#pragma once

#include "base/arena.h"
#include "plan/job.h"

typedef struct ot_order_choice {
  ot_pipeline pipeline;
  int vpp;
} ot_order_choice;

typedef struct ot_shard_choice {
  int zero, dp_shard;
} ot_shard_choice;

// Candidates that differ in order, shards and recompute only: all combinations can run.
typedef struct ot_space_group {
  ot_candidate base;  // the rest: degrees and micro-batches
  int num_orders, num_shards;
  const ot_order_choice *orders;  // [num_orders]
  const ot_shard_choice *shards;  // [num_shards]
} ot_space_group;

// A part that the rules refuse.
typedef struct ot_refusal {
  ot_candidate candidate;  // one that has it
  const char *reason;      // as ot_candidate_check says it
} ot_refusal;

// Parts of a candidate that rules look at.
typedef enum ot_space_part {
  OT_PART_BATCH,   // micro-batches of a rank
  OT_PART_SIZE,    // what cuts a micro-batch
  OT_PART_ORDER,   // of the pipeline
  OT_PART_SHARDS,  // what cuts the weights
  OT_PARTS,
} ot_space_part;

enum { OT_MAX_REFUSALS = 3 };

typedef struct ot_space {
  int64_t num_groups;
  ot_space_group *groups;  // [num_groups]
  int num_recomputes;
  ot_recompute recompute[3];  // [num_recomputes] of every group
  int64_t num_candidates;     // with those that are refused
  int64_t num_refused;
  int num_refusals[OT_PARTS];
  ot_refusal refusals[OT_PARTS][OT_MAX_REFUSALS];  // the first, each reason once
} ot_space;

// `job` must have passed its check. Lives in `arena`.
void ot_space_build(const ot_job *job, ot_arena *arena, ot_space *out);

// One candidate of a group.
ot_candidate ot_space_candidate(const ot_space_group *group, ot_order_choice order,
                                ot_shard_choice shard, ot_recompute recompute);
