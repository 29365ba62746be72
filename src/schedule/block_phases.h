// SPDX-License-Identifier: Apache-2.0
// What a training step does with each block of a graph, as segments, without an arena, an order or
// entries: what a planner needs to price a step before anybody builds it. The segments are those
// that ot_schedule_build would run, made by the same builders; the graph may have one layer of
// each kind only (ot_model_take_layers), since equal layers share theirs.
#pragma once

#include "graph/graph.h"
#include "schedule/build.h"
#include "schedule/step_outline.h"
#include "schedule/storage.h"

// Segments of one block; null where a phase has no tasks. The first of two is of the first
// micro-batch, which overwrites the accumulators, the other of later ones.
typedef struct ot_block_phases {
  const ot_segment *forward[2], *recompute;
  const ot_segment *backward[2];   // B, or I where I and W are apart
  const ot_segment *weight[2];     // W where it is apart
  const ot_segment *reduce[2][2];  // sums of the bucket: [adds to the piece][last micro-batch]
  const ot_segment *norm, *update;
  const ot_segment *gather;  // of weights, where they or the states are cut
  const ot_segment *spread;  // of summed gradients, where nothing is cut
  const ot_storage *storage;
  const ot_bucket *bucket;
  ot_block_buckets buckets;
  int parts;               // of its parameters
  int64_t second_moments;  // elements of the bucket that have them
  bool shards;             // optimizer states are sharded (ZeRO 1 to 3)
} ot_block_phases;

typedef struct ot_step_phases {
  const ot_graph *graph;
  const ot_run *run;
  ot_schedule schedule;                 // groups and buckets of the rank; nothing to run
  ot_block_phases *blocks;              // [graph->num_blocks]
  const ot_segment *tied_reduce[2][2];  // sums of the head's use of a tied embedding
  const ot_segment *tie;                // adds up the two uses
  const ot_segment *tied_update;  // of the copy that the head's stage holds, where it is another
  int64_t scratch_bytes, staging_bytes;  // that the segments need, each in its lane's memory
  bool split;
} ot_step_phases;

// Which segments are built; others are null.
typedef enum ot_step_part {
  OT_STEP_ALL,
  OT_STEP_WORK,  // of micro-batches: they do not depend on how gradients are summed
  OT_STEP_SUMS,  // all others: they do not depend on the size of a micro-batch; no storage
} ot_step_part;

// How a step is split up that is not in an ot_schedule_request.
typedef struct ot_step_shape {
  ot_step_part part;
  bool split;       // I and W apart
  bool tied_apart;  // embedding and head are on different stages
} ot_step_shape;

// From the request's graph of mode train, run, mesh, rank and guard_bytes. All blocks are taken to
// be on one stage, but groups are those of the mesh.
void ot_step_phases_build(const ot_schedule_request *request, ot_step_shape shape, ot_arena *arena,
                          ot_step_phases *out);

// The segments around the micro-batches of a step whose model has `num_blocks` blocks and
// `num_parts` parts of parameters.
void ot_step_phases_frame(const ot_step_phases *phases, int num_blocks, int num_parts,
                          ot_arena *arena, ot_segment frame[2]);
