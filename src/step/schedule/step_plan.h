// SPDX-License-Identifier: Apache-2.0
// Actions of one rank's step in order, and the buffer slot of each micro-batch of a chunk; without
// addresses. Private to schedule/.
#pragma once

#include "schedule/buffer_pool.h"
#include "schedule/builder_state.h"
#include "schedule/step_outline.h"

typedef struct ot_step_plan {
  ot_pipeline_flow flow;
  ot_step_outline outline;
  ot_pool_use *kept[OT_SAVED_KINDS];  // [local chunk * micro_batches + micro-batch], in actions
} ot_step_plan;

// Plans a step of `micro_batches`: the flow of all stages, and the saved activations of this one.
// OT_USAGE as ot_pipeline_schedule_build.
ot_status ot_step_plan_build(ot_build *b, int micro_batches, ot_step_plan *plan);

// Bucket use of the first `num_blocks` blocks, for an outline. Keeps `buckets` [num_blocks].
ot_outline_request ot_step_outline_request(const ot_build *b, const ot_block_buckets *buckets,
                                           int num_blocks);

// Index of the chunk among those of this rank.
int ot_step_local_chunk(const ot_build *b, int chunk);

// The action of the rank that an item belongs to.
const ot_flow_action *ot_step_action(const ot_build *b, const ot_step_plan *plan,
                                     const ot_step_item *item);
