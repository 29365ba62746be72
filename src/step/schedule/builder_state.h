// SPDX-License-Identifier: Apache-2.0
// State shared by the files that build a schedule. Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/build.h"
#include "schedule/regions.h"
#include "schedule/step_regions.h"

// Location of the buffers of a region.
typedef struct ot_placed {
  int64_t offset, stride;  // offset -1: none
  ot_saved_kind kept;
} ot_placed;

typedef struct ot_build {
  const ot_schedule_request *request;
  const ot_graph *shape;  // graph that defines the layout of weights
  ot_arena *arena;
  ot_schedule *schedule;
  ot_region_map map;
  int64_t segments_capacity, orders_capacity, entries_capacity;
  ot_stages stages;        // the request's, or a single one with all blocks
  int stage;               // this rank's stage
  bool serves;             // an inference engine: see ot_schedule_build
  const int *stage_ranks;  // [stages.num_ranks] ranks of the stages, this rank among them
  bool *runs;              // [num_blocks] blocks that this rank computes
  bool *held;  // [num_blocks] blocks whose weights this rank holds: those it computes, and on
               // the last stage the embedding that the head is tied to
  bool shards_any_states;     // ZeRO 1 to 3 with more than one rank to shard over
  bool accumulates_sharded;   // accumulate: sharded
  int tied_block;             // block that owns the head's tied parameter, or -1
  int tied_user;              // the head if tied, or -1
  int nothing;                // empty segment for entries that only wait; pipelines only
  bool apart;                 // analysis only: segments are not deduplicated
  ot_block_buckets *buckets;  // [num_blocks] without their read and write flags
  ot_block_memory *memory;    // [num_blocks] without activations
  // Indexed by block, by buffer, or 0; see ot_region_need.
  ot_placed *placed[OT_REGION_KINDS];
  // Arena offsets by block, -1: none.
  int64_t *weights;  // gathered buckets
  int64_t *pieces;   // this rank's weight shard; inside the gathered bucket if that is kept
  int64_t *gradients, *gradient_pieces, *caches;
  int64_t tied_gradients, tied_piece;  // of the tied use, if the owner is on the same rank
} ot_build;

// Sets groups, stages and persistent regions from b->request, arena and schedule.
void ot_build_begin(ot_build *b);

// Returns the index of an equal segment, or adds a copy of this one with its hash.
int ot_build_add_segment(ot_build *b, const ot_segment *segment);

// Adds an order. Only the order added last accepts entries.
ot_order *ot_build_add_order(ot_build *b, ot_order_kind kind, int micro_batches);

// Adds an entry with the step-level bases bound. `block` is -1 for the whole step. The pointer is
// valid until the next call.
ot_entry *ot_build_add_entry(ot_build *b, ot_order *order, int segment, int block);

// Binds weights, accumulators, statistics and cache of the entry's block.
void ot_build_bind_block(const ot_build *b, ot_entry *entry);

// How the bucket of `block` is sharded over OT_GROUP_SHARD (or its equivalent in the block's view),
// if other ranks have parts of its gradient: optimizer states; weights (ZeRO 3); reduction of
// gradients after each micro-batch.
bool ot_build_shards_states(const ot_build *b, int block);
bool ot_build_shards_weights(const ot_build *b, int block);
bool ot_build_reduces_each(const ot_build *b, int block);

// Ranks in a group of this rank, 1 if it does not exist.
int ot_build_group_size(const ot_build *b, ot_group_kind kind);

// Places persistent regions; records the needs of optimizer and reductions in buckets.
void ot_build_place_persistent(ot_build *b);

// Places the regions of a step. Adds the saved activations of `storage` [num_blocks] to b->memory.
typedef struct ot_step_needs {
  const ot_graph *graph;
  const ot_storage *storage;
  const ot_outline_request *blocks;
  const ot_planned_step *steps;  // [num_steps]
  int num_steps;
  int64_t scratch_bytes, staging_bytes;
} ot_step_needs;
void ot_build_place_step(ot_build *b, const ot_step_needs *needs);

// Arena offset of buffer slot `place` of a region, or -1.
static inline int64_t ot_build_at(const ot_build *b, ot_region_kind kind, int block, int place) {
  const ot_placed *const placed = &b->placed[kind][block];
  return placed->offset < 0 ? -1 : placed->offset + place * placed->stride;
}

// Bytes of the constant tables.
int64_t ot_build_constant_bytes(const ot_graph *graph);

// Bytes of one activation between blocks.
int64_t ot_build_hidden_bytes(const ot_graph *graph);

// Bytes of the activation received from the previous block (0 if none), of the stack at the start
// of `block`, and of both. At a pipeline boundary both are sent as one contiguous message, the
// stack after the activation.
int64_t ot_build_input_bytes(const ot_graph *graph, int block);
int64_t ot_build_stack_bytes(const ot_graph *graph, int block);
int64_t ot_build_edge_bytes(const ot_graph *graph, int block);

// Bytes of the stack at the end of `block`, and of the activation sent to the next block.
int64_t ot_build_stack_end_bytes(const ot_graph *graph, int block);
int64_t ot_build_output_bytes(const ot_graph *graph, int block);

// Adds all step orders of the request (order_step.c).
ot_status ot_build_step_orders(ot_build *b);

// Adds the order that gives the weights to generators (order_publish.c).
void ot_build_publish_order(ot_build *b);

// Adds the order of a mode without a backward (order_forward.c).
void ot_build_forward_order(ot_build *b, ot_order_kind kind, const ot_graph *graph);
