// SPDX-License-Identifier: Apache-2.0
// Products by plans (gemm_plan.h), and which of them cuBLASLt gets.
#include "kernels/cuda/matmul.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "kernels/cuda/gemm_plan.h"

// ---- create ----

static ot_status name_device(ot_cuda_matmul *m) {
  struct cudaDeviceProp properties;
  int ordinal = 0;
  OT_CHECK(cudaGetDevice(&ordinal) == cudaSuccess &&
               cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess,
           OT_ENVIRONMENT, "the name of the GPU cannot be read");
  ot_text_format(m->device, sizeof m->device, "%s", properties.name);
  return OT_OK;
}

// OT_PRODUCTS=own: without the library.
static ot_status choose_products(bool *own) {
  const char *const choice = getenv("OT_PRODUCTS");
  *own = choice && strcmp(choice, "own") == 0;
  OT_CHECK(!choice || *own || strcmp(choice, "library") == 0, OT_ENVIRONMENT,
           "OT_PRODUCTS is %s, must be library (default) or own", choice);
  return OT_OK;
}

static ot_status open_library(ot_cuda_matmul *m) {
  bool own = false;
  OT_TRY(name_device(m));
  OT_TRY(choose_products(&own));
  if (own) return OT_OK;
  OT_TRY(ot_lt_open(&m->api));
  const int status = m->api.create(&m->handle);
  OT_CHECK(status == 0, OT_ENVIRONMENT, "cuBLASLt cannot be used on this device (status %d)",
           status);
  OT_CHECK(cudaMalloc(&m->workspace, OT_GEMM_WORKSPACE_BYTES) == cudaSuccess, OT_ENVIRONMENT,
           "the device lacks %d MiB for the workspace of cuBLASLt", OT_GEMM_WORKSPACE_BYTES >> 20);
  return OT_OK;
}

ot_status ot_cuda_matmul_create(ot_cuda_matmul **matmul) {
  *matmul = calloc(1, sizeof **matmul);
  OT_CHECK(*matmul, OT_ENVIRONMENT, "kernels: out of memory");
  const ot_status status = open_library(*matmul);
  if (status != OT_OK) ot_cuda_matmul_destroy(matmul);
  return status;
}

void ot_cuda_matmul_destroy(ot_cuda_matmul **matmul) {
  if (!matmul || !*matmul) return;
  ot_cuda_matmul *const m = *matmul;
  while (m->plans) {
    ot_gemm_plan *const p = m->plans;
    m->plans = p->next;
    ot_gemm_plan_destroy(&m->api, p);
  }
  if (m->workspace) (void)cudaFree(m->workspace);
  if (m->handle) m->api.destroy(m->handle);
  ot_lt_close(&m->api);
  free(m);
  *matmul = NULL;
}

// ---- products ----

// True if cuBLASLt may have it: operands of one type, a bias of the result's type.
static bool fits_library(const ot_cuda_product *p) {
  const bool same = p->a.dtype == p->b.dtype;
  const bool result = p->y.dtype == p->a.dtype || p->y.dtype == p->compute;
  const bool addend = !p->addend.data || p->addend.dtype == p->y.dtype;
  const bool bias = !p->bias.data || (p->bias.dtype == p->y.dtype && p->y.dtype == p->a.dtype);
  return same && result && addend && bias;
}

// Null: out of memory.
static ot_gemm_plan *plan_of(ot_cuda_matmul *m, const ot_cuda_product *product) {
  const ot_gemm_key key = ot_gemm_key_of(product);
  ot_gemm_plan *p = ot_gemm_plan_find(m, &key);
  if (p) return p;
  p = ot_gemm_plan_create(m, &key);
  if (p) ot_gemm_plan_choose(m, p);
  return p;
}

void ot_cuda_multiply(const ot_cuda_context *context, const ot_cuda_product *product) {
  ot_cuda_matmul *const m = context->matmul;
  ot_gemm_plan *const p = m->api.library && fits_library(product) ? plan_of(m, product) : NULL;
  if (p && p->failure == 0) p->failure = ot_gemm_plan_run(m, p, product, context->stream);
  if (!p || p->failure != 0) ot_cuda_multiply_generic(context->stream, product);
}
