// SPDX-License-Identifier: Apache-2.0
// Products of the head whose extents a vocabulary of any size leaves aligned (ot_cuda_head_pads).
#pragma once

#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/matmul.h"
}

// Queues the copy of w [V, C] and zero rows to `to` [stride, C].
static inline void ot_copy_padded(void *stream, const ot_tensor &w, int64_t stride, void *to) {
  const size_t bytes = (size_t)ot_type_bytes(&w.type);
  const size_t all = bytes / (size_t)w.type.dim[0] * (size_t)stride;
  (void)cudaMemcpyAsync(to, w.data, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
  (void)cudaMemsetAsync((char *)to + bytes, 0, all - bytes, (cudaStream_t)stream);
}

// Queues dw [V, C] (+)= dlogits^T x: where `splits`, the last V % 8 rows by themselves.
static inline void ot_multiply_by_rows(const ot_cuda_context *context, const ot_cuda_product *dw,
                                       bool splits) {
  enum { UNIT = 8 };
  const int64_t rest = splits ? dw->rows % UNIT : 0, whole = dw->rows - rest;
  ot_cuda_product p = *dw;
  p.rows = whole;
  if (whole > 0) ot_cuda_multiply(context, &p);
  if (rest == 0) return;
  const int64_t skipped = whole * p.y.stride * ot_dtype_bytes(p.y.dtype);
  p.rows = rest;
  p.a.data = (const char *)p.a.data + whole * ot_dtype_bytes(p.a.dtype);
  p.y.data = (const char *)p.y.data + skipped;
  if (p.addend.data) p.addend.data = p.y.data;
  ot_cuda_multiply(context, &p);
}
