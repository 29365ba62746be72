// SPDX-License-Identifier: Apache-2.0
// Plans of cuBLASLt products: one for each combination of shape, types and operands, made at its
// first use, so that every later call of the same product runs the same algorithm. cuBLASLt's
// matrices are in column-major order: y^T = b^T a^T is computed from the same memory.
#include "kernels/cuda/matmul.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/lt_api.h"

enum { WORKSPACE_BYTES = 32 << 20, ALIGNMENT = 16 };

// What determines a plan; compared as bytes.
typedef struct plan_key {
  int64_t rows, columns, depth;
  int64_t a_stride, b_stride, y_stride, addend_stride;
  int32_t a_dtype, y_dtype, compute;
  int8_t a_transposed, b_transposed, adds, has_bias, aligned, pad[3];
} plan_key;

typedef struct plan {
  struct plan *next;
  plan_key key;
  ot_lt_description *description;
  ot_lt_layout *first, *second, *addend, *result;  // of b^T, a^T, addend^T, y^T
  ot_lt_algorithm algorithm;
  int failure;  // cublasStatus_t; 0: usable
} plan;

struct ot_cuda_matmul {
  ot_lt_api api;
  ot_lt_handle *handle;
  void *workspace;
  plan *plans;
};

// ---- create ----

static ot_status open_library(ot_cuda_matmul *m) {
  OT_TRY(ot_lt_open(&m->api));
  if (!m->api.library) return OT_OK;
  const int status = m->api.create(&m->handle);
  OT_CHECK(status == 0, OT_ENVIRONMENT, "cuBLASLt cannot be used on this device (status %d)",
           status);
  OT_CHECK(cudaMalloc(&m->workspace, WORKSPACE_BYTES) == cudaSuccess, OT_ENVIRONMENT,
           "the device lacks %d MiB for the workspace of cuBLASLt", WORKSPACE_BYTES >> 20);
  return OT_OK;
}

ot_status ot_cuda_matmul_create(void *stream, ot_cuda_matmul **matmul) {
  (void)stream;
  *matmul = calloc(1, sizeof **matmul);
  OT_CHECK(*matmul, OT_ENVIRONMENT, "kernels: out of memory");
  const ot_status status = open_library(*matmul);
  if (status != OT_OK) ot_cuda_matmul_destroy(matmul);
  return status;
}

static void free_plan(const ot_lt_api *api, plan *p) {
  ot_lt_layout *const layouts[] = {p->first, p->second, p->addend, p->result};
  if (p->description) api->forget(p->description);
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    if (layouts[i]) api->free_layout(layouts[i]);
  }
  free(p);
}

void ot_cuda_matmul_destroy(ot_cuda_matmul **matmul) {
  if (!matmul || !*matmul) return;
  ot_cuda_matmul *const m = *matmul;
  while (m->plans) {
    plan *const p = m->plans;
    m->plans = p->next;
    free_plan(&m->api, p);
  }
  if (m->workspace) (void)cudaFree(m->workspace);
  if (m->handle) m->api.destroy(m->handle);
  ot_lt_close(&m->api);
  free(m);
  *matmul = NULL;
}

// ---- plans ----

static int lt_type(int dtype) {
  if (dtype == OT_BF16) return OT_LT_R_16BF;
  return dtype == OT_F64 ? OT_LT_R_64F : OT_LT_R_32F;
}

static bool is_aligned(const ot_cuda_matrix *x) {
  const uintptr_t bits = (uintptr_t)x->data | (uintptr_t)(x->stride * ot_dtype_bytes(x->dtype));
  return bits % ALIGNMENT == 0;
}

static plan_key key_of(const ot_cuda_product *p) {
  plan_key key;
  memset(&key, 0, sizeof key);
  const bool adds = p->addend.data != NULL;
  key.rows = p->rows;
  key.columns = p->columns;
  key.depth = p->depth;
  key.a_stride = p->a.stride;
  key.b_stride = p->b.stride;
  key.y_stride = p->y.stride;
  key.addend_stride = adds ? p->addend.stride : p->y.stride;
  key.a_dtype = p->a.dtype;
  key.y_dtype = p->y.dtype;
  key.compute = p->compute;
  key.a_transposed = p->a.transposed;
  key.b_transposed = p->b.transposed;
  key.adds = adds;
  key.has_bias = p->bias.data != NULL;
  key.aligned = is_aligned(&p->a) && is_aligned(&p->b) && is_aligned(&p->y) &&
                (!adds || is_aligned(&p->addend));
  return key;
}

static int set_operands(const ot_lt_api *api, plan *p) {
  const plan_key *const k = &p->key;
  const int first = k->b_transposed ? OT_LT_TRANSPOSE : OT_LT_NO_TRANSPOSE;
  const int second = k->a_transposed ? OT_LT_TRANSPOSE : OT_LT_NO_TRANSPOSE;
  const int epilogue = k->has_bias ? OT_LT_EPILOGUE_BIAS : OT_LT_EPILOGUE_DEFAULT;
  const int compute = k->compute == OT_F64 ? OT_LT_COMPUTE_64F : OT_LT_COMPUTE_32F;
  int status = api->describe(&p->description, compute, lt_type(k->compute));
  status |= api->set_description(p->description, OT_LT_TRANSPOSE_A, &first, sizeof first);
  status |= api->set_description(p->description, OT_LT_TRANSPOSE_B, &second, sizeof second);
  status |= api->set_description(p->description, OT_LT_EPILOGUE, &epilogue, sizeof epilogue);
  return status;
}

static int set_layouts(const ot_lt_api *api, plan *p) {
  const plan_key *const k = &p->key;
  const int type = lt_type(k->a_dtype), result = lt_type(k->y_dtype);
  const uint64_t m = (uint64_t)k->columns, n = (uint64_t)k->rows, depth = (uint64_t)k->depth;
  int status = api->lay_out(&p->first, type, k->b_transposed ? depth : m,
                            k->b_transposed ? m : depth, k->b_stride);
  status |= api->lay_out(&p->second, type, k->a_transposed ? n : depth, k->a_transposed ? depth : n,
                         k->a_stride);
  status |= api->lay_out(&p->addend, result, m, n, k->addend_stride);
  return status | api->lay_out(&p->result, result, m, n, k->y_stride);
}

static int choose(const ot_cuda_matmul *m, plan *p) {
  const ot_lt_api *const api = &m->api;
  const uint64_t bytes = WORKSPACE_BYTES;
  const uint32_t reductions = OT_LT_REDUCTION_COMPUTE_TYPE;
  const uint32_t alignment = p->key.aligned ? ALIGNMENT : (uint32_t)ot_dtype_bytes(OT_BF16);
  ot_lt_preference *preference = NULL;
  ot_lt_choice best;
  int found = 0;
  memset(&best, 0, sizeof best);
  int status = api->prefer(&preference);
  if (status != 0) return status;
  status |= api->set_preference(preference, OT_LT_WORKSPACE_BYTES, &bytes, sizeof bytes);
  status |= api->set_preference(preference, OT_LT_REDUCTION_MASK, &reductions, sizeof reductions);
  for (int i = 0; i < 4; i++) {
    status |= api->set_preference(preference, OT_LT_ALIGNMENT_A + i, &alignment, sizeof alignment);
  }
  status |= api->choose(m->handle, p->description, p->first, p->second, p->addend, p->result,
                        preference, 1, &best, &found);
  api->free_preference(preference);
  p->algorithm = best.algorithm;
  enum { NOT_SUPPORTED = 15 };
  return status == 0 && found == 0 ? NOT_SUPPORTED : status;
}

// Null: no memory.
static plan *make_plan(ot_cuda_matmul *m, const plan_key *key) {
  plan *const p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->key = *key;
  p->failure = set_operands(&m->api, p);
  if (p->failure == 0) p->failure = set_layouts(&m->api, p);
  if (p->failure == 0) p->failure = choose(m, p);
  p->next = m->plans;
  m->plans = p;
  return p;
}

static plan *find_plan(ot_cuda_matmul *m, const ot_cuda_product *product) {
  const plan_key key = key_of(product);
  for (plan *p = m->plans; p; p = p->next) {
    if (memcmp(&p->key, &key, sizeof key) == 0) return p;
  }
  return make_plan(m, &key);
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

static int run_plan(ot_cuda_matmul *m, plan *p, const ot_cuda_product *product, void *stream) {
  static const double real_one = 1, real_zero = 0;
  static const float one = 1, zero = 0;
  const bool wide = product->compute == OT_F64;
  const bool adds = product->addend.data != NULL;
  const void *const alpha = wide ? (const void *)&real_one : &one;
  const void *const nothing = wide ? (const void *)&real_zero : &zero;
  if (product->bias.data) {
    const int status = m->api.set_description(p->description, OT_LT_BIAS_POINTER,
                                              &product->bias.data, sizeof product->bias.data);
    if (status != 0) return status;
  }
  return m->api.multiply(
      m->handle, p->description, alpha, product->b.data, p->first, product->a.data, p->second,
      adds ? alpha : nothing, adds ? product->addend.data : product->y.data, p->addend,
      (void *)product->y.data, p->result, &p->algorithm, m->workspace, WORKSPACE_BYTES, stream);
}

void ot_cuda_multiply(const ot_cuda_context *context, const ot_cuda_product *product) {
  ot_cuda_matmul *const m = context->matmul;
  plan *const p = m->api.library && fits_library(product) ? find_plan(m, product) : NULL;
  if (p && p->failure == 0 && run_plan(m, p, product, context->stream) == 0) return;
  ot_cuda_multiply_generic(context->stream, product);
}
