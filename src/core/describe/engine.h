// SPDX-License-Identifier: Apache-2.0
// The software that runs a step, as far as it determines the step: overlap, saved activations, host
// behaviour. Orthant is one value; frameworks of published runs are files (presets/engines,
// software/engine_keys.h) that cite the source of each figure. The simulator does not see an
// engine, only the schedule and the kernel style derived from it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "describe/abilities.h"
#include "describe/cluster.h"
#include "describe/kernel_style.h"

// The computation that hides collectives of tp; each level includes the previous ones.
typedef enum ot_tensor_overlap {
  OT_TENSOR_OVERLAP_NONE,
  OT_TENSOR_OVERLAP_BACKWARD,  // the weight-gradient GEMM, in the backward
  OT_TENSOR_OVERLAP_KERNELS,   // independent kernels, in schedule order
  OT_TENSOR_OVERLAP_PIECES,    // and, chunk by chunk, the GEMMs that produce or consume the tensor
  OT_TENSOR_OVERLAP_HALF,      // not known: the mean of none and pieces on devices with 8-bit
                               // products, whose software is as new as both; none on older ones
} ot_tensor_overlap;

// The hidden messages between stages.
typedef enum ot_pipeline_overlap {
  OT_PIPELINE_OVERLAP_NONE,
  OT_PIPELINE_OVERLAP_CHUNKS,  // if a stage has several chunks or splits its backward: with one
                               // chunk, the next action needs the message
  OT_PIPELINE_OVERLAP_ALL,     // receives are posted early
} ot_pipeline_overlap;

// Software whose configurations can be read and written (--from, --emit).
typedef enum ot_software {
  OT_SOFTWARE_NONE,
  OT_SOFTWARE_MEGATRON,
  OT_SOFTWARE_TORCHTITAN,
  OT_SOFTWARE_DEEPSPEED,
  OT_SOFTWARE_NANOTRON,
  OT_SOFTWARES,
} ot_software;

// Names by ot_software, then a null.
extern const char *const ot_software_names[OT_SOFTWARES + 1];

typedef struct ot_engine {
  const char *name;
  ot_kernel_style kernels;
  const char *recipe;    // training precision when none is given (describe/recipe.h)
  ot_software software;  // whose configurations and launch scripts run it
  ot_abilities runs;

  // ops of a block
  bool dropout;            // after attention's softmax, attention and the MLP
  bool chunked_loss;       // logits exist for some tokens at a time; otherwise for the whole
                           // micro-batch
  int64_t loss_rows;       // tokens with logits at once with chunked_loss; 0: the head op's choice
  bool sequence_parallel;  // norms and residuals are sharded over tp
  bool health_metrics;     // measures activations in each micro-batch

  double selective_share;   // fraction of a block's forward that selective recompute recomputes; 0:
                            // attention
  bool scattered_messages;  // stages send a shard from each rank of tp and all-gather it there

  // overlap of collectives with compute
  bool overlap_reduce;         // gradient reductions, per bucket during the last backward
  bool overlap_gather;         // weights of the next block (ZeRO 3)
  bool overlap_update_gather;  // weights after the update (ZeRO 1, 2), during the next forward
  ot_tensor_overlap overlap_tensor;      // of tp
  ot_pipeline_overlap overlap_pipeline;  // messages between stages
  bool overlap_expert;  // all-to-all of tokens, in pairs of a forward and the backward of an
                        // earlier micro-batch: interleaved stages, or none
  bool overlap_pairs;   // the same in the pairs of dualpipe-v

  // gradients and weights
  int64_t bucket_bytes;          // gradients per reduction; 0 = one block of the model
  int64_t bucket_rank_bytes;     // but at least this per rank of the reduction
  bool reduce_each_micro_batch;  // ZeRO 2 and 3: reductions after each micro-batch
  bool reshard_after_forward;    // ZeRO 3: gathered again for the backward
  bool copies_gradients;         // into buckets or another dtype before the reduction
  double zero_bytes;             // of a gradient, zeroed each step
  double update_bytes;  // moved per parameter and step by norm, clipping and update; 0: one read
                        // and write of the recipe's states
  bool stages_by_cost;  // assigns blocks to stages by cost; otherwise equal numbers of layers

  // experts
  bool sends_copies;    // a token is sent once for each of its experts (a plain all-to-all),
                        // otherwise once to each domain and rank with any of them
  bool sorts_received;  // separate passes permute received tokens and their results;
                        // otherwise the sender sorts
  bool fp8_dispatch;    // experts in 8 bits: tokens are sent to them in 8 bits, too
  double expert_bias_bytes[2];  // moved per element of expert outputs, forward and backward, for
                                // experts with biases

  // memory
  int64_t live_elements;       // ZeRO 3: weights used again within this many elements stay gathered
  bool keeps_gathered;         // tensors gathered by sequence parallelism are saved whole for the
                               // backward
  bool keeps_activated;        // gated MLPs: the activated gate is saved with gate, up and product
  bool fp8_activation_inputs;  // gated MLPs: gate and up are saved in 8 bits
  bool keeps_outputs;          // stages keep sent activations until their gradient is back
  bool drops_elementwise;      // results of norms and elementwise ops alone are recomputed
  int stage_buffers;           // micro-batches that a stage has memory for, per stage of the
                               // pipeline; forward and backward then share no memory. 0: as the
                               // pipeline schedule needs
  double copy_bytes;           // of a gradient, kept in addition when gradients are reduced
  double step_bytes;           // of a gradient shard, flat copies made by the update (ZeRO 1, 2)
  double saved_score_bytes;    // unfused attention: saved per element of T x T scores and head
  double loss_logit_bytes;     // kept per logit until its gradient is computed
  double allocator_slack;      // fraction of memory lost to an allocator; 0 with a planned arena
  int64_t context_bytes;       // of an accelerator's runtime, libraries and communicators
} ot_engine;

// Switches that a run of the software sets or leaves as the engine file has them.
typedef enum ot_switch { OT_SWITCH_OPEN, OT_SWITCH_ON, OT_SWITCH_OFF } ot_switch;

typedef struct ot_engine_options {
  ot_switch compiled;            // blocks, by torch.compile
  ot_switch captured;            // kernels, in CUDA graphs
  ot_switch fused_loss;          // cross-entropy in one kernel
  ot_switch fused_accumulation;  // as the members of ot_kernel_style and ot_engine
  ot_switch fp8_attention;
  ot_switch fp8_activation_inputs;
  ot_switch overlap_reduce;
  ot_switch overlap_gather;
  ot_switch overlap_update_gather;
  ot_switch overlap_pipeline;  // ON: chunks
  ot_switch overlap_expert;
  ot_switch async_tp;        // chunk by chunk with the GEMMs; OFF: not at all
  ot_switch backward_tp;     // where async_tp is OFF: with the weight-gradient GEMM
  ot_switch fused_dispatch;  // sent once and sorted on the way (DeepEP, HybridEP)
  int attention;             // 1 + ot_attention_kernel; 0: open
  int64_t bucket_bytes;      // 0: open
  int64_t live_elements;     // 1 + the member of ot_engine; 0: open
  double selective_share;    // as the member of ot_engine; 0: open
} ot_engine_options;

// Whether some pipeline schedules hide the all-to-all of tokens in pairs.
bool ot_engine_pairs(const ot_engine *engine);

// Applies the options that are not open.
void ot_engine_apply(const ot_engine_options *options, ot_engine *engine);

// Device memory of the runtime, libraries and communicators: context_bytes; 0 for the host's own
// CPU, whose memory figure excludes them.
int64_t ot_engine_context_bytes(const ot_engine *engine, const ot_device_kind *device);

// The kernel style for simulating the engine's steps on `device`; null for Orthant on the host's
// own CPU, which simulate/price.h models.
const ot_kernel_style *ot_engine_style(const ot_engine *engine, const ot_device_kind *device);

// Orthant: the behaviour of its own schedules.
extern const ot_engine ot_engine_orthant;

// Consistency of the values; single ranges are checked with their keys.
ot_status ot_engine_check(const ot_engine *engine);
