// SPDX-License-Identifier: Apache-2.0
// The CUDA back end of kernels.h.
#include <stdlib.h>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/tables.h"
#include "kernels/kernels.h"

static const ot_kernel_entry *const f32[] = {ot_elementwise_cuda_f32, NULL};

static const ot_kernel_entry *const f64[] = {ot_elementwise_cuda_f64, NULL};

static void close_context(void *context) { free(context); }

static ot_status open_context(void *stream, void **context) {
  ot_cuda_context *const made = calloc(1, sizeof *made);
  OT_CHECK(made, OT_ENVIRONMENT, "kernels: out of memory");
  made->stream = stream;
  *context = made;
  return OT_OK;
}

static const ot_kernel_backend backend = {
    .f32 = f32, .f64 = f64, .open = open_context, .close = close_context};

const ot_kernel_backend *const ot_kernels_cuda = &backend;
