// SPDX-License-Identifier: Apache-2.0
// Segments of one rank's step, block by block. Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/step_plan.h"
#include "schedule/storage.h"

// Segments of one block; -1 if a phase has no tasks.
typedef struct ot_block_segments {
  int forward[2];  // [first micro-batch that accumulates, later ones]
  int recompute;
  int backward[2];  // B, or I if split
  int weight[2];    // W when split
  int norm, update, gather, gather_gradient;
  int reduce[2][2];  // [accumulates into the shard][last micro-batch]
  int checksum;      // for OT_ORDER_CHECKSUM
} ot_block_segments;

typedef struct ot_step_builder {
  ot_build *b;
  const ot_graph *graph;
  ot_storage *storage;          // [num_blocks]
  ot_block_segments *segments;  // [num_blocks]
  ot_block_segments tied;       // reductions of the head's bucket of a tied embedding
  int tie;                      // adds the gradients of both uses: locally, or over OT_GROUP_TIED
  ot_block_buckets *buckets;    // [num_blocks] their use of buckets
  int64_t scratch_bytes, staging_bytes;
  bool split;           // I and W are separate
  bool hashes;          // there is an OT_ORDER_CHECKSUM
  bool only_sums;       // builds no storage and no segments of micro-batches
  bool only_work;       // builds only those
  ot_step_plan *plans;  // [num_plans]
  int num_plans;
  int64_t batch_bytes;  // per micro-batch
} ot_step_builder;

// Fills storage, segments, tied, tie and buckets from build, graph and split, and the scratch
// sizes.
void ot_step_segments_build(ot_step_builder *s);
