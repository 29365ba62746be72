// SPDX-License-Identifier: Apache-2.0
// Segments of a training step for each block of a graph, without arena, orders or entries: the
// planner's input to price a step before a schedule exists. The builders of ot_schedule_build make
// the segments. The graph may have one layer of each kind only (ot_model_take_layers), since equal
// layers share segments.
#pragma once

#include "graph/graph.h"
#include "schedule/build.h"
#include "schedule/step_outline.h"
#include "schedule/storage.h"

// Segments of one block; null if a phase has no tasks. Of two, the first is for the first
// micro-batch, which overwrites the accumulators, the second for later ones.
typedef struct ot_block_phases {
  const ot_segment *forward[2], *recompute;
  const ot_segment *backward[2];   // B, or I if I and W are separate
  const ot_segment *weight[2];     // W if separate
  const ot_segment *reduce[2][2];  // bucket: [accumulates into the shard][last micro-batch]
  const ot_segment *norm, *update;
  const ot_segment *gather;           // all-gather of weights, if they or the states are sharded
  const ot_segment *gather_gradient;  // all-gather of reduced gradients (ZeRO 0)
  const ot_storage *storage;
  const ot_bucket *bucket;
  ot_block_buckets buckets;
  int parts;               // parts of its parameters
  int64_t second_moments;  // elements of the bucket that have them
  bool shards;             // optimizer states are sharded (ZeRO 1 to 3)
} ot_block_phases;

typedef struct ot_step_phases {
  const ot_graph *graph;
  const ot_run *run;
  ot_schedule schedule;                  // groups and buckets of the rank; no orders
  ot_block_phases *blocks;               // [graph->num_blocks]
  const ot_segment *tied_reduce[2][2];   // reduction of the head's gradient of a tied embedding
  const ot_segment *tie;                 // adds the gradients of the two uses
  const ot_segment *tied_update;         // of the copy on the head's stage, if separate
  int64_t scratch_bytes, staging_bytes;  // of the segments, on their lanes
  bool split;
} ot_step_phases;

// Which segments are built; others are null.
typedef enum ot_step_part {
  OT_STEP_ALL,
  OT_STEP_WORK,  // of micro-batches: independent of gradient reduction
  OT_STEP_SUMS,  // all others: independent of the micro-batch size; no storage
} ot_step_part;

// Properties of a step that an ot_schedule_request lacks.
typedef struct ot_step_shape {
  ot_step_part part;
  bool split;               // I and W are separate
  bool tied_across_stages;  // embedding and head are on different stages
} ot_step_shape;

// Uses the request's graph of mode train, run, mesh, rank and guard_bytes. Treats all blocks as on
// one stage, but uses the groups of the mesh.
void ot_step_phases_build(const ot_schedule_request *request, ot_step_shape shape, ot_arena *arena,
                          ot_step_phases *out);

// The segments before and after the micro-batches of a step, for a model with `num_blocks` blocks
// and `num_parts` parts of parameters.
void ot_step_phases_frame(const ot_step_phases *phases, int num_blocks, int num_parts,
                          ot_arena *arena, ot_segment frame[2]);
