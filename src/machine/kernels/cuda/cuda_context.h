// SPDX-License-Identifier: Apache-2.0
// The state that the CUDA kernels of one stream share.
#pragma once

#include "kernels/cuda/tensor_map.h"
#include "ops/kernel.h"

typedef struct ot_cuda_matmul ot_cuda_matmul;

typedef struct ot_cuda_context {
  void *stream;  // cudaStream_t
  ot_cuda_matmul *matmul;
  ot_tensor_map_encode encode;  // null: no kernel uses the tensor memory accelerator
} ot_cuda_context;

static inline const ot_cuda_context *ot_cuda_context_of(const ot_kernel_call *call) {
  return (const ot_cuda_context *)call->context;
}

static inline void *ot_cuda_stream_of(const ot_kernel_call *call) {
  return ot_cuda_context_of(call)->stream;
}
