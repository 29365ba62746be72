// SPDX-License-Identifier: Apache-2.0
// Attention by Hopper's warpgroup products and tensor memory accelerator, for calls that it fits
// where the context has the encoder of tensor maps (kernels_cuda.c). Each returns false without any
// work for others.
#pragma once

#include <stdbool.h>

#include "ops/kernel.h"

// As ot_attention_mma and so on (attention_mma.h).
bool ot_attention_hopper(const ot_kernel_call *call, double *maxima, int64_t *blocks);
bool ot_attention_block_hopper(const ot_kernel_call *call, double *maxima, int64_t *blocks);
bool ot_attention_grad_hopper(const ot_kernel_call *call, const float *delta);
bool ot_attention_block_grad_hopper(const ot_kernel_call *call, const float *delta);
