// SPDX-License-Identifier: Apache-2.0
// Regions of one rank's arena in address order: sizes only. A schedule assigns addresses; an
// estimate adds up the sizes.
#pragma once

#include "schedule/schedule.h"
#include "schedule/step_outline.h"
#include "schedule/storage.h"

typedef enum ot_region_kind {
  // Persistent. Per block held by the rank:
  OT_REGION_WEIGHTS,    // this rank's shard if gathered before use
  OT_REGION_GRADIENTS,  // this rank's shard if reduced after each micro-batch
  OT_REGION_MOMENT_1,
  OT_REGION_MOMENT_2,
  OT_REGION_MASTER,
  // Per rank:
  OT_REGION_TIED_GRADIENTS,  // of the head's use of an embedding on the same rank
  OT_REGION_CONSTANTS,
  OT_REGION_STATISTICS,
  OT_REGION_UPDATES,
  OT_REGION_SQUARES,
  OT_REGION_EXPERT_SUMS,
  OT_REGION_SCALARS,
  // For steps.
  OT_REGION_BATCH,
  OT_REGION_SCRATCH,
  OT_REGION_STAGING,
  OT_REGION_SEND,           // forward messages; `block` is the buffer index
  OT_REGION_SEND_GRADIENT,  // backward messages
  OT_REGION_GATHERED,       // weight buckets, shared by all blocks with buckets of that size
  OT_REGION_GRADIENT_PART,  // gradient buckets being reduced, shared likewise
  OT_REGION_TIED_PART,
  OT_REGION_INPUT,  // input of the block; with the stack at the start of a chunk
  OT_REGION_SLOT_SHORT,
  OT_REGION_SLOT_LONG,
  OT_REGION_SLOT_WEIGHT,
  OT_REGION_D_OUTPUT,   // gradient of its output; with the stack at the end of a chunk
  OT_REGION_PING_PONG,  // ping-pong buffers of gradients inside a chunk: `block` is 0 or 1
  OT_REGION_KINDS,
} ot_region_kind;

// One region: `count` buffers of `bytes`. `kept`: which micro-batches hold a buffer.
typedef struct ot_region_need {
  ot_region_kind kind;
  ot_memory_class class;
  int block;
  ot_saved_kind kept;
  int64_t bytes;
  int count;
} ot_region_need;

// The sizes that a block's regions depend on.
typedef struct ot_block_memory {
  int64_t shard_elements;               // this rank's shard of the block's bucket
  int64_t second_moments;               // elements of the bucket that have them
  bool shards;                          // optimizer states are sharded (ZeRO 1 to 3)
  int64_t slot_bytes[OT_SLOT_CLASSES];  // saved per micro-batch
  bool has_input, has_d_output;         // receives an activation; receives a gradient
  int stack, stack_end;                 // size of the stack at its start and end, in activations
  bool weight_pass_reads_input;         // W reads the input
} ot_block_memory;

// Fills all fields except those of the bucket, from the program of a block and its storage.
void ot_block_memory_describe(const ot_program *program, const ot_storage *storage,
                              ot_block_memory *out);

// Bytes per element; 0: no such copy.
typedef struct ot_state_bytes {
  double weight, gathered, gradient, moment_1, moment_2, master;
} ot_state_bytes;

// A step with one number of micro-batches.
typedef struct ot_planned_step {
  const ot_pipeline_flow *flow;
  const ot_step_outline *outline;  // null if no bucket is gathered or reduced in between
} ot_planned_step;

typedef struct ot_region_request {
  const ot_outline_request *blocks;
  const ot_block_memory **memory;  // [num_blocks]
  ot_state_bytes bytes;
  bool train;    // with gradients and optimizer states
  bool experts;  // the model has experts
  int64_t norm_slots;
  int64_t constant_bytes;
  // for steps
  const ot_planned_step *steps;  // [num_steps]
  int num_steps;
  int64_t hidden_bytes;  // one activation between blocks
  int64_t batch_bytes;   // one micro-batch
  int64_t scratch_bytes, staging_bytes;
} ot_region_request;

typedef void ot_region_visitor(void *to, const ot_region_need *need);

// Calls `take` for the persistent regions, or for those of steps, in address order.
void ot_regions_persistent(const ot_region_request *request, ot_arena *arena,
                           ot_region_visitor *take, void *to);
void ot_regions_step(const ot_region_request *request, ot_arena *arena, ot_region_visitor *take,
                     void *to);
