// SPDX-License-Identifier: Apache-2.0
// What the files that build a schedule share while they do. Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/build.h"
#include "schedule/regions.h"
#include "schedule/step_regions.h"

// Where the buffers of a region lie.
typedef struct ot_placed {
  int64_t offset, stride;  // offset -1: there is none
  ot_kept kept;
} ot_placed;

typedef struct ot_build {
  const ot_schedule_request *request;
  const ot_graph *shape;  // graph that says where weights lie
  ot_arena *arena;
  ot_schedule *schedule;
  ot_region_map map;
  int64_t segments_capacity, orders_capacity, entries_capacity;
  ot_stages stages;  // the request's, or one that holds every block
  int stage;         // of this rank
  bool *runs;        // [num_blocks] blocks that this rank computes
  bool *held;        // [num_blocks] blocks whose weights it holds: those, and on the last stage the
                     // embedding that its head is tied to
  bool cuts_states;  // ZeRO 1 to 3, with ranks to cut over
  bool accumulates_sharded;   // accumulate: sharded
  int tied_block;             // block whose parameter the head is tied to, or -1
  int tied_user;              // the head, or -1
  int nothing;                // a segment without tasks, for entries that only wait; pipelines only
  bool apart;                 // segments are looked at and never run: equal ones are not looked for
  ot_block_buckets *buckets;  // [num_blocks] without what they read and write
  ot_block_memory *memory;    // [num_blocks] without activations
  // Regions by block, by number of the buffer, or first; see ot_region_need.
  ot_placed *placed[OT_REGION_KINDS];
  // Arena offsets by block, -1 where there is none.
  int64_t *weights;  // whole buckets
  int64_t *pieces;   // this rank's piece of the weights; in the whole bucket where that is kept
  int64_t *gradients, *gradient_pieces, *caches;
  int64_t tied_gradients, tied_piece;  // of the use, where the owner is on this rank, too
} ot_build;

// Groups, stages, and what stands in the arena for all orders, from b->request, arena and schedule.
void ot_build_begin(ot_build *b);

// The index of an equal segment, or of a copy of this one with its hash.
int ot_build_add_segment(ot_build *b, const ot_segment *segment);

// A new order; entries may be added to it until the next order is begun.
ot_order *ot_build_add_order(ot_build *b, ot_order_kind kind, int micro_batches);

// A new entry with the step-level bases bound. `block` is -1 for the whole step. Valid until the
// next call.
ot_entry *ot_build_add_entry(ot_build *b, ot_order *order, int segment, int block);

// Binds weights, accumulators, statistics and cache of the entry's block.
void ot_build_bind_block(const ot_build *b, ot_entry *entry);

// What is done with the bucket of `block`, if other ranks have parts of its gradient: its optimizer
// state is cut over OT_GROUP_SHARD (or what stands for it in the block's view); its weights are,
// too (ZeRO 3); its gradients are summed over it after each micro-batch.
bool ot_build_shards(const ot_build *b, int block);
bool ot_build_gathers(const ot_build *b, int block);
bool ot_build_eachtime(const ot_build *b, int block);

// Ranks in a group of this rank, 1 where there is none.
int ot_build_group_size(const ot_build *b, ot_group_kind kind);

// Places what stands for all orders; what the optimizer and reductions need is noted in buckets.
void ot_build_place_persistent(ot_build *b);

// Places what a step uses in turn. Adds to b->memory what `storage` [num_blocks] keeps.
typedef struct ot_step_needs {
  const ot_graph *graph;
  const ot_storage *storage;
  const ot_outline_request *blocks;
  const ot_planned_step *steps;  // [num_steps]
  int num_steps;
  int64_t scratch_bytes, staging_bytes;
} ot_step_needs;
void ot_build_place_step(ot_build *b, const ot_step_needs *needs);

// Where buffer `place` of a region lies, -1 where there is none.
static inline int64_t ot_build_at(const ot_build *b, ot_region_kind kind, int block, int place) {
  const ot_placed *const placed = &b->placed[kind][block];
  return placed->offset < 0 ? -1 : placed->offset + place * placed->stride;
}

// Bytes of the tables of constants.
int64_t ot_build_constant_bytes(const ot_graph *graph);

// Bytes of one activation between blocks.
int64_t ot_build_hidden_bytes(const ot_graph *graph);

// Bytes of what comes from the block before `block` (0 where nothing does), and of the stack that
// is there when it begins. Where a cut of the pipeline is before it, both cross it in one piece,
// the stack behind the other.
int64_t ot_build_input_bytes(const ot_graph *graph, int block);
int64_t ot_build_stack_bytes(const ot_graph *graph, int block);
int64_t ot_build_edge_bytes(const ot_graph *graph, int block);

// Bytes of the stack when `block` ends, and of what it gives to the next block.
int64_t ot_build_stack_end_bytes(const ot_graph *graph, int block);
int64_t ot_build_output_bytes(const ot_graph *graph, int block);

// All step orders of the request (order_step.c).
ot_status ot_build_step_orders(ot_build *b);

// The order of a mode without a backward (order_forward.c).
void ot_build_forward_order(ot_build *b, ot_order_kind kind, const ot_graph *graph);
