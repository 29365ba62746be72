// SPDX-License-Identifier: Apache-2.0
// The segments that a step of one rank runs, block by block. Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/step_plan.h"
#include "schedule/storage.h"

// Segments of one block; -1 where a phase has no tasks.
typedef struct ot_block_segments {
  int forward[2];  // [first to add to the accumulators, later]
  int recompute;
  int backward[2];  // B, or I when split
  int weight[2];    // W when split
  int norm, update, gather, spread;
  int reduce[2][2];  // [adds to the piece][last]
} ot_block_segments;

typedef struct ot_step_builder {
  ot_build *b;
  const ot_graph *graph;
  ot_storage *storage;          // [num_blocks]
  ot_block_segments *segments;  // [num_blocks]
  ot_block_segments tied;       // reductions of the bucket of the head's use of a tied embedding
  int tie;                      // adds uses up: here, or over OT_GROUP_TIED
  ot_block_buckets *buckets;    // [num_blocks] what they do with buckets
  int64_t scratch_bytes, staging_bytes;
  bool split;           // I and W apart
  bool only_sums;       // blocks have no storage and no segments for micro-batches
  bool only_work;       // and no others
  ot_step_plan *plans;  // [num_plans]
  int num_plans;
  int64_t batch_bytes;  // of a micro-batch
} ot_step_builder;

// Fills storage, segments, tied, tie and buckets from build, graph and split, and the scratch they
// need.
void ot_step_segments_build(ot_step_builder *s);
