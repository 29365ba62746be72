// SPDX-License-Identifier: Apache-2.0
// A step of one rank before it becomes entries: its work in order (items), and which of the buffers
// that are used in turn each piece of work gets. Private to schedule/.
//
//   actions (chunk by chunk)  ->  items (block by block)  ->  uses of buffers, as intervals of
//   items
//                                                          ->  places in rings (rings.h)
//
// What leaves or comes on other lanes has intervals, too: a message is received from the action
// before its reader on; gathered weights stand from the issue of the gather to their last reader.
#pragma once

#include "graph/graph.h"
#include "pipeline/pipeline_order.h"
#include "schedule/builder_state.h"
#include "schedule/rings.h"

typedef struct ot_step_item {
  ot_phase phase;  // FORWARD, BACKWARD, INPUT (the last two with their recompute) or WEIGHT
  int chunk, block, micro_batch;
  int action;               // of the rank's list
  int gather, tied_gather;  // use of ot_step_plan.gathers that it reads, or -1
  int sum;                  // use of ot_step_plan.sums that it writes to, or -1
  int tied_sum;             // the same of tied_sums
} ot_step_item;

// What a chunk's micro-batch keeps, [local chunk * micro_batches + micro-batch].
typedef enum ot_step_ring {
  OT_RING_SHORT,     // slots F..I, and inputs of blocks that W does not read
  OT_RING_LONG,      // slots F..W, and inputs of blocks that W reads
  OT_RING_WEIGHT,    // slots I..W, and gradients between the chunk's blocks when I and W are apart
  OT_RING_INPUT,     // what enters the chunk
  OT_RING_D_OUTPUT,  // the gradient that enters it backwards
  OT_RINGS,
} ot_step_ring;

// A bucket gathered for some items, or a bucket of gradients that is summed apart.
typedef struct ot_step_use {
  int block, micro_batch;
  int issue;            // item before which a gather is issued
  int first, last;      // items that read or write it
  int place, previous;  // in the ring of its size, the use that had the place before
} ot_step_use;

typedef struct ot_step_plan {
  int micro_batches;
  bool split;        // I and W apart
  int send_buffers;  // of each direction, in turn
  int num_items;
  ot_step_item *items;
  int num_actions;
  ot_action *actions;           // of this rank
  int *first_item;              // [num_actions + 1]
  ot_ring_use *ring[OT_RINGS];  // [num_local * micro_batches]
  int *ring_size[OT_RINGS];     // [num_local]
  int num_gathers, num_sums, num_tied_sums;
  ot_step_use *gathers, *sums, *tied_sums;  // by first item; places count within buckets of a size
} ot_step_plan;

// Plans a step of `micro_batches`. OT_USAGE as ot_pipeline_order_build.
ot_status ot_step_plan_build(ot_build *b, int micro_batches, ot_step_plan *plan);

// Plans one forward of the blocks of `graph` that are on this rank: items and gathers, nothing
// else.
void ot_step_plan_forward(ot_build *b, const ot_graph *graph, ot_step_plan *plan);

// Number of the chunk among those of this rank.
int ot_step_local_chunk(const ot_build *b, int chunk);

// Places that the uses of buckets of `elements` take.
int ot_step_places(const ot_build *b, const ot_step_use *uses, int count, int64_t elements);
