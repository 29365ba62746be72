// SPDX-License-Identifier: Apache-2.0
// Bounds over the stages of a candidate, given the bounds of its blocks and of its collectives
// (bound.h has the reasoning). Private to bound.c.
#pragma once

#include "search/bound.h"

typedef struct ot_bounder {
  const ot_estimator *estimator;
  const ot_candidate *candidate;
  const ot_shard_bound *shards;
  const ot_work_bound *work;
  const ot_block_list *blocks;
  const ot_stage_partition *cut;  // null: ignore which stage has which block
  const ot_stages *stages;        // of `cut`
  const ot_pipeline_flow *flow;   // null: ignore the pipeline schedule
  double scale;                   // of seconds and saved activations, to the micro-batch size
  double state_bytes[2];          // per parameter of the dense view, and of the expert view
  double pool_bytes[2];           // per parameter of the largest block, in addition to its states
  double met_s, end_s;            // last stage has its reductions; the longest update
  double peak;
} ot_bounder;

// A bounder without prices: `work`, `shards` and `scale` follow.
void ot_bounder_begin(const ot_estimator *estimator, const ot_candidate *candidate,
                      ot_bounder *out);

// Fill met_s, end_s and peak of `bounder`. `any`: for all schedules that split the backward as the
// candidate's, else for its schedule. `chunks`: of a stage, at most; 0: micro-batches need not pass
// the stages in order.
void ot_bound_mean(ot_bounder *bounder, bool any, int chunks);

// With the partition, without the pipeline schedule.
void ot_bound_cut(ot_bounder *bounder);

// With both.
void ot_bound_stages(ot_bounder *bounder, ot_arena *scratch);
