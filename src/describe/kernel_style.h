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

// Elementwise work, by what shares a pass over memory.
typedef enum ot_pass_style {
  OT_PASSES_FUSED,  // norm, activation, bias and residual: one kernel each, by hand or compiled
  OT_PASSES_EAGER,  // one kernel for each operator of the framework
  OT_PASS_STYLES,
} ot_pass_style;

typedef struct ot_kernel_style {
  ot_attention_kernel attention;
  ot_pass_style passes;
  double kernels_per_product;  // kernels that the host starts for a matrix product: casts,
                               // transposes and bias beside it, >= 1
  double kernels_per_pass;     // and for another op, >= 1
  double host_kernel_s;        // host time of one, >= 0
  double softmax_passes;       // unfused: times that T x T scores are read or written between the
                               // products forward; backward as often
  bool host_ahead;             // the host queues kernels while the device works: a block takes the
                               // longer of the two
  bool switch_reductions;      // the library reduces in switches that can (NCCL 2.18 and later)
  double cast_bytes;           // fp8: bytes moved to cast an element of an operand of a product
  bool fp8_attention, fp8_head;  // fp8 recipes: whether these products are in fp8, too
} ot_kernel_style;
