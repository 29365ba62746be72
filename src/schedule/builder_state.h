// SPDX-License-Identifier: Apache-2.0
// What the files that build a schedule share while they do. Private to schedule/.
#pragma once

#include "schedule/build.h"
#include "schedule/regions.h"

typedef struct ot_build {
  const ot_schedule_request *request;
  const ot_graph *shape;  // graph that says where weights lie
  ot_arena *arena;
  ot_schedule *schedule;
  ot_region_map map;
  int64_t segments_capacity, orders_capacity, entries_capacity;
  // Arena offsets by block, -1 where there is none.
  int64_t *weights, *gradients, *moment_1, *moment_2, *master, *caches;
  // Arena offsets of step-level buffers.
  int64_t scalars, statistics, squares, updates, constants;
} ot_build;

// The index of an equal segment, or of a copy of this one.
int ot_build_add_segment(ot_build *b, const ot_segment *segment);

// A new order; entries may be added to it until the next order is begun.
ot_order *ot_build_add_order(ot_build *b, ot_order_kind kind, int micro_batches);

// A new entry with the step-level bases bound. `block` is -1 for the whole step. Valid until the
// next call.
ot_entry *ot_build_add_entry(ot_build *b, ot_order *order, int segment, int block);

// Binds weights, accumulators, statistics and cache of the entry's block.
void ot_build_bind_block(const ot_build *b, ot_entry *entry);

// All step orders of the request (order_step.c).
void ot_build_step_orders(ot_build *b);

// The order of a mode without a backward (order_forward.c).
void ot_build_forward_order(ot_build *b, ot_order_kind kind, const ot_graph *graph);
