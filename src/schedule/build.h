// SPDX-License-Identifier: Apache-2.0
// Builds the schedule of one rank from the graphs of the modes it runs: regions of the arena, the
// segments each block needs, and the orders that run them. All modes share the weights.
#pragma once

#include "describe/mesh.h"
#include "describe/run.h"
#include "graph/graph.h"
#include "pipeline/stages.h"
#include "schedule/schedule.h"

typedef struct ot_schedule_request {
  const ot_graph *graphs[OT_MODES];  // by mode; null where the mode is not needed
  const ot_run *run;                 // optimizer and recompute; needed to train
  const int
      *micro_batches;  // [num_micro_batches] numbers of micro-batches a step may have, distinct
  int num_micro_batches;
  bool split_backward;      // I and W as segments of their own, in place of B
  const ot_mesh *mesh;      // null: one rank
  int rank;                 // of the mesh; the graphs must be built with its split
  const ot_stages *stages;  // null: one stage holds every block
  const char *order_csv;    // text of a compute order file, or null: run->parallel.pipeline
  int64_t guard_bytes;      // free bytes behind buffers; 0 outside tests
} ot_schedule_request;

ot_status ot_schedule_build(const ot_schedule_request *request, ot_arena *arena,
                            ot_schedule *schedule);

// The kind of order that runs a mode.
ot_order_kind ot_order_of_mode(ot_mode mode);
