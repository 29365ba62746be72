// SPDX-License-Identifier: Apache-2.0
// The work of one rank in a step before anything has an address: its items in order, and which
// buckets of weights are gathered for them and which buckets of gradients are summed after them.
// Made from a few facts about each block, so that a schedule and an estimate of it are made from
// the same outline.
//
//   actions (chunk by chunk) -> items (block by block) -> uses of buckets, as intervals of items
//                                                      -> places in buffers (rings.h)
#pragma once

#include "pipeline/pipeline_flow.h"
#include "pipeline/stages.h"

// What the work of a block does with buckets.
typedef struct ot_block_buckets {
  int64_t elements;  // of the block's bucket; buckets of one size take turns in the same buffers
  bool gathers;      // its weights are gathered before they are read (ZeRO 3)
  bool each_micro_batch;  // its gradients are summed over ranks after each micro-batch
  bool reads[OT_WORKS], reads_tied[OT_WORKS];  // its weights, and those of the block it is tied to
  bool writes_in_forward;                      // gradients
} ot_block_buckets;

// One block of one action. Uses are indices of the lists below, or -1.
typedef struct ot_step_item {
  ot_work work;
  int chunk, block, micro_batch;
  int action;               // place in the rank's list
  int gather, tied_gather;  // use of `gathers` that it reads
  int sum, tied_sum;        // uses of `sums` and `tied_sums` that it writes to
} ot_step_item;

// A bucket of weights gathered for some items, or of gradients that is summed when the last of its
// items is done.
typedef struct ot_bucket_use {
  int block, micro_batch;
  int issue;            // item before which a gather begins
  int first, last;      // items that read or write it
  int place, previous;  // among the buffers of its size, and the use that had it before, or -1
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
  const bool *reshards;              // [num_blocks] gathered weights are released after each use
  int num_blocks;
  int prefetch;               // how many gathers ahead of its first reader one begins
  int tied_block, tied_user;  // the head and the block that it is tied to, -1 where there is none
} ot_outline_request;

// A step. `flow` is of the same stages.
void ot_step_outline_build(const ot_outline_request *request, const ot_pipeline_flow *flow,
                           ot_arena *arena, ot_step_outline *out);

// One forward of the rank's blocks, chunk by chunk.
void ot_step_outline_forward(const ot_outline_request *request, ot_arena *arena,
                             ot_step_outline *out);

// Buffers that `list` needs for buckets of `elements`.
int ot_outline_places(const ot_outline_request *request, const ot_bucket_list *list,
                      int64_t elements);
