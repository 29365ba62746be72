// SPDX-License-Identifier: Apache-2.0
// How software runs kernels, as far as it decides what one task takes: the part of an engine
// (describe/engine.h) that the simulator may see. Facts about software, never fitted figures; what
// they come from stands beside each engine.
#pragma once

#include <stdbool.h>

#include "base/dtype.h"

// Attention, by how often it touches memory and how well it keeps the device busy.
typedef enum ot_attention_kernel {
  OT_ATTENTION_UNFUSED,  // batched products around a fused softmax of T x T scores
  OT_ATTENTION_FLASH_1,  // Dao et al. 2022; Triton kernels of that time
  OT_ATTENTION_FLASH_2,  // Dao 2023; cuDNN fused attention up to version 8
  OT_ATTENTION_FLASH_3,  // Shah et al. 2024; cuDNN from version 9, on Hopper and later
  OT_ATTENTION_KERNELS,
} ot_attention_kernel;

typedef struct ot_kernel_style {
  ot_attention_kernel attention;
  double pass_factor;   // bytes that elementwise work moves, over those of fused kernels, >= 1
  double score_passes;  // unfused: times that T x T scores are read or written between the products
  double loss_bytes;    // moved per logit, forward and backward, beside the products
  double cast_bytes;    // fp8: bytes moved to cast an element of an operand, its transpose included
  bool casts_weights;   // fp8: in each micro-batch; else once a step, which is not counted
  double host_ops;      // host time of an op, over that of one that Python dispatches
  double expert_ops;    // and of an op that moves rows to experts or works on groups: no graph
                        // captures shapes that routing decides
  double group_ops;     // and of a grouped product for each expert of the rank, beside it, where
                        // it is in 8 bits or experts have biases
  bool host_ahead;      // the host queues kernels while the device works: the longer of the two
                        // counts; else one comes after the other
  bool fused_sums;      // residuals and partial sums are added inside the product's kernel
  bool fused_accumulation;  // gradients of weights are added up inside the product's kernel; else
                            // each is written, and added in the type of the weights
  bool fused_experts;       // grouped products make the activation between them, and the casts
  bool switch_reductions;   // the library adds up in switches that can (NCCL 2.18 and later)
  bool relays;              // and reaches a port through the device beside it (2.12 and later)
  bool fp8_attention, fp8_head;  // fp8 recipes: whether these products are in fp8, too
} ot_kernel_style;
