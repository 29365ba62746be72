// SPDX-License-Identifier: Apache-2.0
// Where everything that a step uses in turn lies in the arena: rings of slots, boundaries between
// blocks, messages, gathered buckets, buckets of gradients on their way. Sized for the largest of
// the planned numbers of micro-batches. Private to schedule/.
#pragma once

#include "graph/graph.h"
#include "schedule/step_plan.h"
#include "schedule/storage.h"

// A ring of equal buffers in the arena.
typedef struct ot_step_buffers {
  int64_t offset, stride;  // offset -1: there are none
} ot_step_buffers;

typedef struct ot_step_memory {
  int64_t batch, batch_bytes, scratch, staging;
  ot_step_buffers *slot[OT_SLOT_CLASSES];  // [num_blocks]
  ot_step_buffers *input, *d_output;       // [num_blocks]
  ot_kept *input_kept, *d_output_kept;
  int64_t hand[2];                   // gradients between blocks of a chunk, I and W at once
  int64_t *send, *back;              // [most send_buffers] messages to the next and to the previous
                                     // chunk's stage, in turn
  ot_step_buffers *gathered, *sums;  // [num_blocks] ring of the block's size of bucket
  ot_step_buffers tied_sums;
} ot_step_memory;

typedef struct ot_step_memory_request {
  ot_build *build;
  const ot_graph *graph;
  const ot_storage *storage;  // [num_blocks]
  const ot_step_plan *plans;  // [num_plans]
  int num_plans;
  const ot_outline_request *buckets;  // what the outlines were made from
  int64_t scratch_bytes, staging_bytes;
} ot_step_memory_request;

void ot_step_memory_build(const ot_step_memory_request *request, ot_step_memory *memory);
