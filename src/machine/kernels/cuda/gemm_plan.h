// SPDX-License-Identifier: Apache-2.0
// Plans of cuBLASLt products: one for each combination of shape, types and operands, made at its
// first use, so that every later call of the same product runs the same algorithm.
#pragma once

#include "kernels/cuda/lt_api.h"
#include "kernels/cuda/matmul.h"

enum { OT_GEMM_WORKSPACE_BYTES = 32 << 20, OT_GEMM_ALIGNMENT = 16, OT_GEMM_DEVICE_BYTES = 256 };

// The key of a plan. Types and `compute` are enumerators of lt_api.h. An alignment is
// OT_GEMM_ALIGNMENT or the bytes of an element.
typedef enum ot_gemm_field {
  OT_GEMM_ROWS,
  OT_GEMM_COLUMNS,
  OT_GEMM_DEPTH,
  OT_GEMM_A_STRIDE,
  OT_GEMM_B_STRIDE,
  OT_GEMM_Y_STRIDE,
  OT_GEMM_ADDEND_STRIDE,  // without addend: that of y, as its alignment
  OT_GEMM_A_ALIGNMENT,
  OT_GEMM_B_ALIGNMENT,
  OT_GEMM_Y_ALIGNMENT,
  OT_GEMM_ADDEND_ALIGNMENT,
  OT_GEMM_BIAS_ALIGNMENT,  // 0: no bias
  OT_GEMM_OPERAND_TYPE,
  OT_GEMM_RESULT_TYPE,
  OT_GEMM_COMPUTE,
  OT_GEMM_A_TRANSPOSED,
  OT_GEMM_B_TRANSPOSED,
  OT_GEMM_ADDEND,  // 0: none, 1: another matrix, 2: y itself
  OT_GEMM_FIELDS,
} ot_gemm_field;

typedef struct ot_gemm_key {
  int64_t of[OT_GEMM_FIELDS];
} ot_gemm_key;

typedef struct ot_gemm_plan {
  struct ot_gemm_plan *next;
  ot_gemm_key key;
  ot_lt_description *description;
  ot_lt_layout *first, *second, *addend, *result;  // of b^T, a^T, addend^T (null: y^T), y^T
  ot_lt_algorithm algorithm;
  int failure;  // cublasStatus_t; not 0: the kernel of our own runs it
} ot_gemm_plan;

struct ot_cuda_matmul {
  ot_lt_api api;
  ot_lt_handle *handle;
  void *workspace;
  char device[OT_GEMM_DEVICE_BYTES];  // its name
  ot_gemm_plan *plans;                // in the order in which they were made
  int replaced;                       // algorithms of tables that others replace
};

ot_gemm_key ot_gemm_key_of(const ot_cuda_product *product);

// Null: there is none.
ot_gemm_plan *ot_gemm_plan_find(const ot_cuda_matmul *matmul, const ot_gemm_key *key);

// A plan without an algorithm, which belongs to `matmul`. Null: out of memory.
ot_gemm_plan *ot_gemm_plan_create(ot_cuda_matmul *matmul, const ot_gemm_key *key);

// Writes up to `wanted` proposals of the library to choices [wanted], which it expects to be the
// fastest first, and returns their number.
int ot_gemm_plan_propose(const ot_cuda_matmul *matmul, ot_gemm_plan *plan, int wanted,
                         ot_lt_choice *choices);

// Takes the first proposal.
void ot_gemm_plan_choose(const ot_cuda_matmul *matmul, ot_gemm_plan *plan);

// Takes `algorithm`; false if the library refuses it.
bool ot_gemm_plan_use(const ot_cuda_matmul *matmul, ot_gemm_plan *plan,
                      const ot_lt_algorithm *algorithm);

// Queues the product of the plan's key. Returns a cublasStatus_t.
int ot_gemm_plan_run(const ot_cuda_matmul *matmul, const ot_gemm_plan *plan,
                     const ot_cuda_product *product, void *stream);

void ot_gemm_plan_destroy(const ot_lt_api *api, ot_gemm_plan *plan);
