// SPDX-License-Identifier: Apache-2.0
// What software runs a step, as far as it shapes the step: what runs concurrently, what is kept,
// how the host behaves. This program is one value; frameworks of published runs are files
// (presets/engines, describe/engine_keys.h), which say where each figure comes from. The simulator
// sees none of this: what it decides is in the schedule, and in the style of kernels.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/cluster.h"
#include "describe/kernel_style.h"

// Parts of a block that recompute selective may make again; any of them together.
typedef enum ot_remade {
  OT_REMADE_ATTENTION = 1,   // its core, no products
  OT_REMADE_NORMS = 2,       //
  OT_REMADE_ACTIVATION = 4,  // of the feed-forward part
  OT_REMADE_WIDE = 8,        // the product before that
} ot_remade;

// What hides collectives of tp; each hides what the ones before it hide, too.
typedef enum ot_tensor_overlap {
  OT_TENSOR_OVERLAP_NONE,
  OT_TENSOR_OVERLAP_BACKWARD,  // dw of a product, in the backward
  OT_TENSOR_OVERLAP_KERNELS,   // kernels that do not need the result, as the schedule orders them
  OT_TENSOR_OVERLAP_PIECES,    // and in pieces, the products that make or read what is moved
} ot_tensor_overlap;

// Which messages between stages are hidden.
typedef enum ot_pipeline_overlap {
  OT_PIPELINE_OVERLAP_NONE,
  OT_PIPELINE_OVERLAP_CHUNKS,  // where a stage has several chunks or splits its backward: with one
                               // chunk, the next action needs the message
  OT_PIPELINE_OVERLAP_ALL,     // receives are posted early
} ot_pipeline_overlap;

typedef struct ot_engine {
  const char *name;
  ot_kernel_style kernels;
  const char *recipe;  // precision that it trains in where nothing else is said (plan/recipe.h)

  // what a block is made of
  bool dropout;            // after attention's softmax, attention and the feed-forward part
  bool chunked_loss;       // logits exist for some rows at a time; else for the whole micro-batch
  int64_t loss_rows;       // rows of logits at once with chunked_loss; 0: as the head op chooses
  bool sequence_parallel;  // norms and residuals are sharded over tp
  bool health_metrics;     // measures activations in each micro-batch

  double selective_share;   // of a block's forward that recompute selective makes again; 0: what
                            // remade says
  unsigned remade;          // ot_remade; 0: attention. Memory counts other parts as kept
  bool scattered_messages;  // stages send a part from each rank of tp, put together there

  // which collectives run concurrently with compute
  bool overlap_reduce;         // sums of gradients, bucket by bucket during the last backward
  bool overlap_gather;         // weights of the next block (ZeRO 3)
  bool overlap_update_gather;  // weights after the update (ZeRO 1, 2), during the next forward
  ot_tensor_overlap overlap_tensor;      // of tp
  ot_pipeline_overlap overlap_pipeline;  // messages between stages
  bool overlap_expert;                   // rows on their way to experts and back

  // gradients and weights
  int64_t bucket_bytes;          // gradients per reduction; 0 = one block of the model
  int64_t bucket_rank_bytes;     // but at least this for each rank of the reduction
  bool reduce_each_micro_batch;  // ZeRO 2 and 3: sums leave after each micro-batch
  bool reshard_after_forward;    // ZeRO 3: gathered again for the backward
  bool copies_gradients;         // into buckets or another type before they are summed
  double zero_bytes;             // of a gradient, cleared each step
  double update_bytes;  // moved per parameter and step by norm, clipping and update; 0: what
                        // the recipe keeps, read and written once
  bool stages_by_cost;  // assigns blocks to stages by their cost; else as many layers each

  // experts
  bool sorts_received;          // received rows are put in order, and results out of it, by passes
                                // of their own; else by the sender
  double expert_bias_bytes[2];  // moved per element that experts put out, forward and backward,
                                // where they have biases

  // memory
  int64_t live_elements;     // ZeRO 3: weights used again within so many stay gathered
  bool keeps_gathered;       // what sequence parallelism gathers is kept whole for the backward
  bool keeps_activated;      // gated MLPs: the activated gate is kept with gate, up and product
  bool keeps_outputs;        // stages keep what they sent until its gradient is back
  bool drops_elementwise;    // what only norms and elementwise work need to make is recomputed
  int stage_buffers;         // micro-batches that a stage has room for, per stage of the pipeline;
                             // forward and backward then share no memory. 0: what the order holds
  double copy_bytes;         // of a gradient, kept in addition where ranks sum gradients
  double step_bytes;         // of a piece's gradient, flat copies that the update makes (ZeRO 1, 2)
  double saved_score_bytes;  // unfused attention: kept per element of T x T scores and head
  double loss_logit_bytes;   // kept per logit until its gradient is made
  double allocator_slack;    // share of memory lost to an allocator; 0 with a planned arena
  int64_t context_bytes;     // of an accelerator's runtime, libraries and communicators
} ot_engine;

// What the runtime, libraries and communicators take of a device's memory: context_bytes; 0 where
// the device is the host's own processor, whose memory is told without them.
int64_t ot_engine_context(const ot_engine *engine, const ot_device_kind *device);

// The kernels that the engine's steps on `device` are simulated with; null where they are those of
// this program on the host's own processor, which simulate/price.h knows.
const ot_kernel_style *ot_engine_style(const ot_engine *engine, const ot_device_kind *device);

// This program: what its own schedules do.
extern const ot_engine ot_engine_orthant;

// What holds between the values; ranges of single ones are those of their keys.
ot_status ot_engine_check(const ot_engine *engine);
