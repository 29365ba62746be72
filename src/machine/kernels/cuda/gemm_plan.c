// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's matrices are in column-major order: y^T = b^T a^T is computed from the same memory.
#include "kernels/cuda/gemm_plan.h"

#include <stdlib.h>
#include <string.h>

// ---- keys ----

static int lt_type(ot_dtype dtype) {
  if (dtype == OT_BF16) return OT_LT_R_16BF;
  return dtype == OT_F64 ? OT_LT_R_64F : OT_LT_R_32F;
}

static int64_t alignment_of(const ot_cuda_matrix *x) {
  return (uintptr_t)x->data % OT_GEMM_ALIGNMENT == 0 ? OT_GEMM_ALIGNMENT : ot_dtype_bytes(x->dtype);
}

static int addend_kind(const ot_cuda_product *p) {
  if (!p->addend.data) return 0;
  return p->addend.data == p->y.data ? 2 : 1;
}

ot_gemm_key ot_gemm_key_of(const ot_cuda_product *p) {
  const ot_cuda_matrix *const addend = p->addend.data ? &p->addend : &p->y;
  return (ot_gemm_key){{
      [OT_GEMM_ROWS] = p->rows,
      [OT_GEMM_COLUMNS] = p->columns,
      [OT_GEMM_DEPTH] = p->depth,
      [OT_GEMM_A_STRIDE] = p->a.stride,
      [OT_GEMM_B_STRIDE] = p->b.stride,
      [OT_GEMM_Y_STRIDE] = p->y.stride,
      [OT_GEMM_ADDEND_STRIDE] = addend->stride,
      [OT_GEMM_A_ALIGNMENT] = alignment_of(&p->a),
      [OT_GEMM_B_ALIGNMENT] = alignment_of(&p->b),
      [OT_GEMM_Y_ALIGNMENT] = alignment_of(&p->y),
      [OT_GEMM_ADDEND_ALIGNMENT] = alignment_of(addend),
      [OT_GEMM_BIAS_ALIGNMENT] = p->bias.data ? alignment_of(&p->bias) : 0,
      [OT_GEMM_OPERAND_TYPE] = lt_type(p->a.dtype),
      [OT_GEMM_RESULT_TYPE] = lt_type(p->y.dtype),
      [OT_GEMM_COMPUTE] = p->compute == OT_F64 ? OT_LT_COMPUTE_64F : OT_LT_COMPUTE_32F,
      [OT_GEMM_A_TRANSPOSED] = p->a.transposed,
      [OT_GEMM_B_TRANSPOSED] = p->b.transposed,
      [OT_GEMM_ADDEND] = addend_kind(p),
  }};
}

// ---- plans ----

ot_gemm_plan *ot_gemm_plan_find(const ot_cuda_matmul *m, const ot_gemm_key *key) {
  ot_gemm_plan *p = m->plans;
  while (p && memcmp(&p->key, key, sizeof *key) != 0) p = p->next;
  return p;
}

// The library expects of every bias the alignment of the pointer that it sees here.
static int set_bias(const ot_cuda_matmul *m, ot_gemm_plan *p) {
  const int64_t alignment = p->key.of[OT_GEMM_BIAS_ALIGNMENT];
  const void *const bias = (const char *)m->workspace + alignment;
  const int epilogue = alignment > 0 ? OT_LT_EPILOGUE_BIAS : OT_LT_EPILOGUE_DEFAULT;
  const int status =
      m->api.set_description(p->description, OT_LT_EPILOGUE, &epilogue, sizeof epilogue);
  if (status != 0 || alignment == 0) return status;
  return m->api.set_description(p->description, OT_LT_BIAS_POINTER, &bias, sizeof bias);
}

static int set_operands(const ot_cuda_matmul *m, ot_gemm_plan *p) {
  const ot_lt_api *const api = &m->api;
  const int64_t *const k = p->key.of;
  const int first = k[OT_GEMM_B_TRANSPOSED] ? OT_LT_TRANSPOSE : OT_LT_NO_TRANSPOSE;
  const int second = k[OT_GEMM_A_TRANSPOSED] ? OT_LT_TRANSPOSE : OT_LT_NO_TRANSPOSE;
  const int compute = (int)k[OT_GEMM_COMPUTE];
  const int scale = compute == OT_LT_COMPUTE_64F ? OT_LT_R_64F : OT_LT_R_32F;
  int status = api->describe(&p->description, compute, scale);
  if (status != 0) return status;
  status |= api->set_description(p->description, OT_LT_TRANSPOSE_A, &first, sizeof first);
  status |= api->set_description(p->description, OT_LT_TRANSPOSE_B, &second, sizeof second);
  return status | set_bias(m, p);
}

static int set_layouts(const ot_lt_api *api, ot_gemm_plan *p) {
  const int64_t *const k = p->key.of;
  const int type = (int)k[OT_GEMM_OPERAND_TYPE], result = (int)k[OT_GEMM_RESULT_TYPE];
  const uint64_t m = (uint64_t)k[OT_GEMM_COLUMNS], n = (uint64_t)k[OT_GEMM_ROWS];
  const uint64_t depth = (uint64_t)k[OT_GEMM_DEPTH];
  const bool b = k[OT_GEMM_B_TRANSPOSED], a = k[OT_GEMM_A_TRANSPOSED];
  int status = api->lay_out(&p->first, type, b ? depth : m, b ? m : depth, k[OT_GEMM_B_STRIDE]);
  status |= api->lay_out(&p->second, type, a ? n : depth, a ? depth : n, k[OT_GEMM_A_STRIDE]);
  status |= api->lay_out(&p->result, result, m, n, k[OT_GEMM_Y_STRIDE]);
  if (k[OT_GEMM_ADDEND] != 1) return status;
  return status | api->lay_out(&p->addend, result, m, n, k[OT_GEMM_ADDEND_STRIDE]);
}

ot_gemm_plan *ot_gemm_plan_create(ot_cuda_matmul *m, const ot_gemm_key *key) {
  ot_gemm_plan **end = &m->plans;
  while (*end) end = &(*end)->next;
  ot_gemm_plan *const p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->key = *key;
  p->failure = set_operands(m, p);
  if (p->failure == 0) p->failure = set_layouts(&m->api, p);
  *end = p;
  return p;
}

static ot_lt_layout *addend_of(const ot_gemm_plan *p) { return p->addend ? p->addend : p->result; }

static int set_preferences(const ot_lt_api *api, ot_lt_preference *preference,
                           const ot_gemm_plan *p) {
  static const ot_gemm_field alignments[] = {OT_GEMM_B_ALIGNMENT, OT_GEMM_A_ALIGNMENT,
                                             OT_GEMM_ADDEND_ALIGNMENT, OT_GEMM_Y_ALIGNMENT};
  const uint64_t bytes = OT_GEMM_WORKSPACE_BYTES;
  // Parts of the depth may be added in the compute type, in a fixed order.
  const uint32_t reductions = OT_LT_REDUCTION_COMPUTE_TYPE;
  int status = api->set_preference(preference, OT_LT_WORKSPACE_BYTES, &bytes, sizeof bytes);
  status |= api->set_preference(preference, OT_LT_REDUCTION_MASK, &reductions, sizeof reductions);
  for (int i = 0; i < OT_COUNT(alignments); i++) {
    const uint32_t alignment = (uint32_t)p->key.of[alignments[i]];
    status |= api->set_preference(preference, OT_LT_ALIGNMENT_A + i, &alignment, sizeof alignment);
  }
  return status;
}

int ot_gemm_plan_propose(const ot_cuda_matmul *m, ot_gemm_plan *p, int wanted,
                         ot_lt_choice *choices) {
  const ot_lt_api *const api = &m->api;
  ot_lt_preference *preference = NULL;
  int found = 0;
  memset(choices, 0, (size_t)wanted * sizeof *choices);
  if (p->failure == 0) p->failure = api->prefer(&preference);
  if (p->failure == 0) p->failure = set_preferences(api, preference, p);
  if (p->failure == 0) {
    p->failure = api->choose(m->handle, p->description, p->first, p->second, addend_of(p),
                             p->result, preference, wanted, choices, &found);
  }
  if (preference) (void)api->free_preference(preference);
  return p->failure == 0 ? found : 0;
}

void ot_gemm_plan_choose(const ot_cuda_matmul *m, ot_gemm_plan *p) {
  ot_lt_choice best;
  const int found = ot_gemm_plan_propose(m, p, 1, &best);
  if (p->failure == 0) p->failure = found == 0 ? OT_LT_NOT_SUPPORTED : best.status;
  p->algorithm = best.algorithm;
}

bool ot_gemm_plan_use(const ot_cuda_matmul *m, ot_gemm_plan *p, const ot_lt_algorithm *algorithm) {
  ot_lt_choice result;
  memset(&result, 0, sizeof result);
  if (p->failure != 0) return false;
  const int status = m->api.check(m->handle, p->description, p->first, p->second, addend_of(p),
                                  p->result, algorithm, &result);
  if (status != 0 || result.workspace_bytes > OT_GEMM_WORKSPACE_BYTES) return false;
  p->algorithm = *algorithm;
  return true;
}

int ot_gemm_plan_run(const ot_cuda_matmul *m, const ot_gemm_plan *p, const ot_cuda_product *product,
                     void *stream) {
  static const double real_one = 1, real_zero = 0;
  static const float one = 1, zero = 0;
  const bool wide = product->compute == OT_F64;
  const void *const alpha = wide ? (const void *)&real_one : &one;
  const void *const nothing = wide ? (const void *)&real_zero : &zero;
  const void *const addend = product->addend.data;
  if (product->bias.data) {
    const int status = m->api.set_description(p->description, OT_LT_BIAS_POINTER,
                                              &product->bias.data, sizeof product->bias.data);
    if (status != 0) return status;
  }
  return m->api.multiply(m->handle, p->description, alpha, product->b.data, p->first,
                         product->a.data, p->second, addend ? alpha : nothing,
                         addend ? addend : product->y.data, p->addend ? p->addend : p->result,
                         (void *)product->y.data, p->result, &p->algorithm, m->workspace,
                         OT_GEMM_WORKSPACE_BYTES, stream);
}

void ot_gemm_plan_destroy(const ot_lt_api *api, ot_gemm_plan *p) {
  ot_lt_layout *const layouts[] = {p->first, p->second, p->addend, p->result};
  if (p->description) (void)api->forget(p->description);
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    if (layouts[i]) (void)api->free_layout(layouts[i]);
  }
  free(p);
}
