// SPDX-License-Identifier: Apache-2.0
// Builds the schedule of one rank from the graphs of its modes: regions of the arena, segments of
// each block, and execution orders. All modes share the weights.
//
// Modes with a cache are an inference engine, whose replicas have nothing to do with each other.
// Its stages send each other messages as ranks of the world, so it needs no groups but those inside
// a stage, and any world can have one next to its training.
#pragma once

#include "describe/mesh.h"
#include "describe/run.h"
#include "graph/graph.h"
#include "pipeline/stages.h"
#include "schedule/schedule.h"

typedef struct ot_schedule_request {
  const ot_graph *graphs[OT_MODES];  // by mode; null: mode not needed
  const ot_run *run;                 // optimizer and recompute; required for training
  const int
      *micro_batches;  // [num_micro_batches] allowed numbers of micro-batches per step, distinct
  int num_micro_batches;
  bool split_backward;      // I and W as separate segments instead of B
  bool separate_recompute;  // no gradient op recomputes a module on the way (graph/recompute.h)
  const ot_graph *whole;    // of the model on one rank, for OT_ORDER_PUBLISH; null: the graphs are
                            // of it
  const ot_mesh *mesh;      // null: one rank
  int rank;                 // of the mesh; the graphs must use its split
  const ot_stages *stages;  // null: one stage holds every block
  const char *order_csv;    // text of a pipeline schedule file, or null: run->parallel.pipeline
  int64_t guard_bytes;      // free bytes after buffers; 0 outside tests
} ot_schedule_request;

ot_status ot_schedule_build(const ot_schedule_request *request, ot_arena *arena,
                            ot_schedule *schedule);

// The order kind that runs a mode.
ot_order_kind ot_order_of_mode(ot_mode mode);
