// SPDX-License-Identifier: Apache-2.0
// What software runs a step, as far as it shapes the step: which ops the builder chooses, what
// overlaps, and how the host and the collectives behave. `orthant` is one value; the others
// describe software of people who published runs. All are facts, and say where they come from. The
// simulator never sees this: what it decides is in the schedule, and in the style of kernels.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/cluster.h"
#include "describe/kernel_style.h"

// How a collective is carried out.
typedef enum ot_collective_algorithm {
  OT_COLLECTIVE_EXCHANGE,      // everyone sends each block to its owner, who sums in rank order
  OT_COLLECTIVE_RING,          // blocks travel around
  OT_COLLECTIVE_TREE,          // sums go up a tree and results down
  OT_COLLECTIVE_HIERARCHICAL,  // first inside a node, then between nodes
  OT_COLLECTIVE_BEST,          // the library takes what is fastest for the size (NCCL)
} ot_collective_algorithm;

// Parts of a block that recompute selective may make again; any of them together.
typedef enum ot_remade {
  OT_REMADE_ATTENTION = 1,   // its core, no products
  OT_REMADE_NORMS = 2,       //
  OT_REMADE_ACTIVATION = 4,  // of the feed-forward part
  OT_REMADE_WIDE = 8,        // the product before that
} ot_remade;

typedef struct ot_engine {
  const char *name;
  ot_kernel_style kernels;
  const char *recipe;  // precision that it trains in where nothing else is said (plan/recipe.h)

  // what a block is made of
  bool dropout;            // after attention's softmax, attention and the feed-forward part
  bool chunked_loss;       // logits exist for some rows at a time; else for the whole micro-batch
  int64_t loss_rows;       // rows of logits at once with chunked_loss
  bool sequence_parallel;  // norms and residuals are cut over tp
  bool tensor_products_overlap;  // dw of a product hides the collective beside it, forward nothing

  double selective_share;   // of a block's forward that recompute selective makes again; 0: what
                            // remade says
  unsigned remade;          // ot_remade; 0: attention. Memory counts other parts as kept
  bool scattered_messages;  // stages send a part from each rank of tp, put together there

  // which collectives run beside compute
  bool overlap_reduce;         // sums of gradients, bucket by bucket during the last backward
  bool overlap_gather;         // weights of the next block (ZeRO 3)
  bool overlap_update_gather;  // weights after the update (ZeRO 1, 2), during the next forward
  bool overlap_tensor;         // of tp, in pieces beside the products
  bool overlap_pipeline;       // messages between stages, where the order allows
  bool overlap_expert;         // what rows take to experts and back

  // gradients and weights
  ot_collective_algorithm reduce, gather;
  int64_t bucket_bytes;          // gradients per reduction; 0 = one block of the model
  int64_t bucket_rank_bytes;     // but at least so many for each rank that sums them
  bool reduce_each_micro_batch;  // ZeRO 2 and 3: sums leave after each micro-batch
  bool reshard_after_forward;    // ZeRO 3: gathered again for the backward
  bool copies_gradients;         // into buckets or another type before they are summed
  bool fused_optimizer;          // one pass over a parameter and its state
  double zero_bytes;             // of a gradient, cleared each step
  double update_bytes;  // moved per parameter and step by norm, clipping and update; 0: what
                        // the recipe keeps, read and written once

  // which software cuts a model to stages by the cost of its blocks; else as many layers each
  bool cuts_by_cost;

  // rows that experts receive are put in their order, and what is sent back out of it, by passes of
  // their own; else by what sends them
  bool sorts_received;
  double expert_bias_bytes[2];  // moved per element that experts put out, forward and backward,
                                // where they have biases

  // memory
  int64_t live_elements;     // ZeRO 3: weights used again within so many stay gathered
  bool keeps_gathered;       // what sequence parallelism gathers is kept whole for the backward
  bool keeps_activated;      // gated MLPs: the activated gate is kept beside gate, up and product
  bool keeps_outputs;        // stages keep what they sent until its gradient is back
  bool drops_elementwise;    // what only norms and elementwise work need to make is made again
  int stage_buffers;         // micro-batches that a stage has room for, per stage of the pipeline;
                             // forward and backward then share no memory. 0: what the order holds
  double copy_bytes;         // of a gradient, kept beside it where ranks sum gradients
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

// The engine called `name`, or null.
const ot_engine *ot_engine_find(const char *name);

// The `index`-th engine, or null behind the last.
const ot_engine *ot_engine_at(int index);

// This program.
extern const ot_engine ot_engine_orthant;

ot_status ot_engine_check(const ot_engine *engine);
int64_t ot_engine_print(const ot_engine *engine, char *out, int64_t capacity);
uint64_t ot_engine_hash(const ot_engine *engine);
