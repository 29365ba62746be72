// SPDX-License-Identifier: Apache-2.0
// The table of kernels, indexed by back end, op kind and compute type. A missing entry means "not
// available", which the caller reports; there is no silent fallback.
#pragma once

#include "kernels/rank_sum.h"
#include "ops/kernel.h"

// What a back end provides.
typedef struct ot_kernel_backend {
  const ot_kernel_entry *const *f32, *const *f64;  // lists of tables, each ended by null
  // Creates what kernels on one stream share (library handles, their workspace). Null: nothing.
  ot_status (*open)(void *stream, void **context);
  void (*close)(void *context);
  void (*sum_ranks)(void *stream, const ot_rank_sum *job);  // null: host memory has its own
} ot_kernel_backend;

// Null in builds without CUDA.
extern const ot_kernel_backend *const ot_kernels_cuda;

// The kernel of `kind` for `compute` (OT_F32 or OT_F64), or null.
ot_kernel ot_kernel_find(ot_backend backend, ot_op_kind kind, ot_dtype compute);

// The `context` of calls on `stream` (ot_stream_native); null on the CPU. The device must be bound.
ot_status ot_kernel_context_create(ot_backend backend, void *stream, void **context);
void ot_kernel_context_destroy(ot_backend backend, void **context);

// Queues a sum over ranks on a stream of a GPU. The device must be bound.
void ot_kernel_sum_ranks(void *stream, const ot_rank_sum *job);
