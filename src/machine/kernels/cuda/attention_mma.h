// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores, for the calls that it fits (attention_mma.cuh). Each returns false
// without any work for other calls.
#pragma once

#include <stdbool.h>

#include "ops/kernel.h"

// OT_OP_ATTENTION and OT_OP_ATTENTION_BLOCK, but for max_logit the largest score of each block goes
// to `maxima`, or nowhere if that is null; `blocks` is their number.
bool ot_attention_mma(const ot_kernel_call *call, double *maxima, int64_t *blocks);
bool ot_attention_block_mma(const ot_kernel_call *call, double *maxima, int64_t *blocks);

// OT_OP_ATTENTION_GRAD and OT_OP_ATTENTION_BLOCK_GRAD with delta [R, H] = do . o.
bool ot_attention_grad_mma(const ot_kernel_call *call, const float *delta);
bool ot_attention_block_grad_mma(const ot_kernel_call *call, const float *delta);
