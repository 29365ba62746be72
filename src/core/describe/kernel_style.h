// SPDX-License-Identifier: Apache-2.0
// How software runs kernels, as far as it determines the time of one task: the part of an engine
// (describe/engine.h) that the simulator sees. Facts about software, no fitted figures; each engine
// file cites their sources.
#pragma once

#include <stdbool.h>

#include "base/dtype.h"

// Attention kernels, by memory traffic and utilisation.
typedef enum ot_attention_kernel {
  OT_ATTENTION_UNFUSED,  // batched GEMMs around a fused softmax of T x T scores
  OT_ATTENTION_FLASH_1,  // Dao et al. 2022; Triton kernels of that time
  OT_ATTENTION_FLASH_2,  // Dao 2023; PyTorch's scaled_dot_product_attention
  OT_ATTENTION_FLASH_3,  // Shah et al. 2024; cuDNN from version 8.9, on Hopper and later
  OT_ATTENTION_FLASH,    // not known: between the last two where both are common; else the last
  OT_ATTENTION_KERNELS,
} ot_attention_kernel;

typedef struct ot_kernel_style {
  ot_attention_kernel attention;
  double
      merged_share;    // of the rate of attention, for blocks of a ring that are merged with others
  double pass_factor;  // memory traffic of elementwise ops relative to fused kernels, >= 1
  double score_passes;  // unfused: reads and writes of T x T scores between the GEMMs
  double loss_bytes;    // moved per logit, forward and backward, in addition to the GEMMs
  double cast_bytes;    // fp8: bytes moved to cast an element of an operand, its transpose included
  bool casts_weights;   // fp8: in each micro-batch; else once a step, which is not counted
  double host_ops;      // host time of an op relative to one dispatched from Python
  double expert_ops;    // the same for token dispatch and grouped ops: CUDA graphs cannot capture
                        // shapes that depend on routing
  double group_ops;     // additional, per local expert of a grouped GEMM, for fp8 or experts with
                        // biases
  bool host_ahead;      // the host queues kernels while the device works, so the longer of the two
                        // times counts; otherwise they add up
  bool fused_sums;      // residuals and partial sums are added in the GEMM epilogue
  bool fused_accumulation;  // weight gradients are accumulated in the GEMM epilogue; otherwise each
                            // is written and then added in the dtype of the weights
  bool fused_experts;       // activation and casts are fused into grouped GEMMs
  bool switch_reductions;   // in-network reductions where switches support them (NCCL 2.18+)
  bool relays;              // reaches a NIC through a neighbouring device (PXN, NCCL 2.12+)
  bool fp8_attention, fp8_head;  // fp8 recipes: whether these GEMMs are in fp8, too
} ot_kernel_style;
