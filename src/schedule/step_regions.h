// SPDX-License-Identifier: Apache-2.0
// What the arena of one rank holds, region by region, in the order in which regions lie: sizes
// only. A schedule gives each region an address; an estimate adds them up.
#pragma once

#include "schedule/schedule.h"
#include "schedule/step_outline.h"
#include "schedule/storage.h"

typedef enum ot_region_kind {
  // For all orders. Of each block that the rank holds:
  OT_REGION_WEIGHTS,    // this rank's piece where they are gathered before use
  OT_REGION_GRADIENTS,  // its piece where they are summed after each micro-batch
  OT_REGION_MOMENT_1,
  OT_REGION_MOMENT_2,
  OT_REGION_MASTER,
  // Of the whole rank:
  OT_REGION_TIED_GRADIENTS,  // of the head's use of an embedding that the rank runs, too
  OT_REGION_SCALARS,
  OT_REGION_STATISTICS,
  OT_REGION_EXPERT_SUMS,
  OT_REGION_SQUARES,
  OT_REGION_UPDATES,
  OT_REGION_CONSTANTS,
  // For steps.
  OT_REGION_BATCH,
  OT_REGION_SCRATCH,
  OT_REGION_STAGING,
  OT_REGION_SEND,           // messages forwards, `block` counts the buffers
  OT_REGION_SEND_GRADIENT,  // and backwards
  OT_REGION_GATHERED,       // buckets of weights, for all blocks with buckets of that size
  OT_REGION_GRADIENT_PART,  // buckets of gradients on their way, the same
  OT_REGION_TIED_PART,
  OT_REGION_INPUT,  // of the block; with the stack where a chunk begins
  OT_REGION_SLOT_SHORT,
  OT_REGION_SLOT_LONG,
  OT_REGION_SLOT_WEIGHT,
  OT_REGION_D_OUTPUT,  // gradient of its output; with the stack where a chunk ends
  OT_REGION_HAND,      // gradients between blocks of a chunk, two in turn: `block` is 0 or 1
  OT_REGION_KINDS,
} ot_region_kind;

// One region: `count` buffers of `bytes`. `kept` says of which micro-batches buffers are.
typedef struct ot_region_need {
  ot_region_kind kind;
  ot_memory_class class;
  int block;
  ot_kept kept;
  int64_t bytes;
  int count;
} ot_region_need;

// What a block's regions depend on.
typedef struct ot_block_memory {
  int64_t piece_elements;               // of the block's bucket, on this rank
  int64_t second_moments;               // elements of the bucket that have them
  bool shards;                          // optimizer states are sharded (ZeRO 1 to 3)
  int64_t slot_bytes[OT_SLOT_CLASSES];  // kept of a micro-batch
  bool has_input, has_d_output;         // something enters it, forwards and backwards
  int stack, stack_end;                 // activations on the stack when it begins and ends
  bool weights_read_in;                 // W reads what enters
} ot_block_memory;

// Fills all but what follows from the bucket, from the program of a block and where it keeps
// values.
void ot_block_memory_describe(const ot_program *program, const ot_storage *storage,
                              ot_block_memory *out);

// Bytes of an element; 0: there is no such copy.
typedef struct ot_state_bytes {
  double weight, gathered, gradient, moment_1, moment_2, master;
} ot_state_bytes;

// A step of one number of micro-batches.
typedef struct ot_planned_step {
  const ot_pipeline_flow *flow;
  const ot_step_outline *outline;  // null where no bucket is gathered or reduced in between
} ot_planned_step;

typedef struct ot_region_request {
  const ot_outline_request *blocks;
  const ot_block_memory **memory;  // [num_blocks]
  ot_state_bytes bytes;
  bool train;    // gradients and optimizer states
  bool experts;  // of the model
  int64_t norm_slots;
  int64_t constant_bytes;
  // for steps
  const ot_planned_step *steps;  // [num_steps]
  int num_steps;
  int64_t hidden_bytes;  // of one activation between blocks
  int64_t batch_bytes;   // of one micro-batch
  int64_t scratch_bytes, staging_bytes;
} ot_region_request;

typedef void ot_region_take(void *to, const ot_region_need *need);

// Gives `take` the regions for all orders, and those of steps, in their order.
void ot_regions_persistent(const ot_region_request *request, ot_arena *arena, ot_region_take *take,
                           void *to);
void ot_regions_step(const ot_region_request *request, ot_arena *arena, ot_region_take *take,
                     void *to);
