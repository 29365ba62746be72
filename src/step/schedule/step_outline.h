// SPDX-License-Identifier: Apache-2.0
// The work of one rank in a step before addresses are assigned: its items in order, the weight
// buckets gathered for them, and the gradient buckets reduced after them. Depends only on a few
// facts about each block, so a schedule and its estimate share one outline.
//
//   actions (chunk by chunk) -> items (block by block) -> uses of buckets, as intervals of items
//                                                      -> slots in buffer pools (buffer_pool.h)
#pragma once

#include "pipeline/pipeline_flow.h"
#include "pipeline/stages.h"

// How the work of a block uses buckets.
typedef struct ot_block_buckets {
  int64_t elements;       // of the block's bucket; buckets of equal size share buffers
  bool gathers;           // its weights are gathered before they are read (ZeRO 3)
  bool each_micro_batch;  // its gradients are reduced after each micro-batch
  bool reads[OT_WORKS], reads_tied[OT_WORKS];  // its weights; those of the tied block
  bool writes_in_forward;                      // accumulates gradients in F
} ot_block_buckets;

// One block of one action. Uses are indices of the lists below, or -1.
typedef struct ot_step_item {
  ot_work work;
  int chunk, block, micro_batch;
  int action;               // index in the rank's list
  int gather, tied_gather;  // uses of `gathers` that it reads
  int sum, tied_sum;        // uses of `sums` and `tied_sums` that it writes
} ot_step_item;

// A weight bucket gathered for some items, or a gradient bucket reduced after the last of its
// items.
typedef struct ot_bucket_use {
  int block, micro_batch;
  int issue;            // item before which the gather starts
  int first, last;      // first and last item that access it
  int place, previous;  // buffer slot of its size; previous use of the slot, or -1
} ot_bucket_use;

typedef struct ot_bucket_list {
  int count;
  ot_bucket_use *uses;  // [count] by first item
} ot_bucket_list;

typedef struct ot_step_outline {
  int num_items;
  ot_step_item *items;  // [num_items]
  int *first_item;      // [actions of the rank + 1]
  ot_bucket_list gathers, sums, tied_sums;
} ot_step_outline;

typedef struct ot_outline_request {
  const ot_stages *stages;
  int stage;
  const ot_block_buckets **buckets;  // [num_blocks]
  const bool *reshards;              // [num_blocks] release gathered weights after each use
  int num_blocks;
  int prefetch;               // number of gathers by which a gather precedes its first reader
  int tied_block, tied_user;  // owner of the tied parameter and the head, or -1
} ot_outline_request;

// Outline of a step. `flow` has the same stages.
void ot_step_outline_build(const ot_outline_request *request, const ot_pipeline_flow *flow,
                           ot_arena *arena, ot_step_outline *out);

// Outline of one forward of the rank's blocks, chunk by chunk.
void ot_step_outline_forward(const ot_outline_request *request, ot_arena *arena,
                             ot_step_outline *out);

// Buffers that `list` needs for buckets of `elements`.
int ot_outline_places(const ot_outline_request *request, const ot_bucket_list *list,
                      int64_t elements);
