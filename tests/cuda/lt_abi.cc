// SPDX-License-Identifier: Apache-2.0
// run: compiled where CMake finds cuBLASLt's header. Sizes, enumerators and functions of lt_api.h
// are those of cublasLt.h.
#include <cstddef>
#include <cublasLt.h>

#include "same_call.h"

extern "C" {
#include "kernels/cuda/lt_api.h"
}

namespace {

static_assert(same<decltype(ot_lt_api::create), decltype(&cublasLtCreate)>);
static_assert(same<decltype(ot_lt_api::destroy), decltype(&cublasLtDestroy)>);
static_assert(same<decltype(ot_lt_api::describe), decltype(&cublasLtMatmulDescCreate)>);
static_assert(
    same<decltype(ot_lt_api::set_description), decltype(&cublasLtMatmulDescSetAttribute)>);
static_assert(same<decltype(ot_lt_api::forget), decltype(&cublasLtMatmulDescDestroy)>);
static_assert(same<decltype(ot_lt_api::lay_out), decltype(&cublasLtMatrixLayoutCreate)>);
static_assert(same<decltype(ot_lt_api::free_layout), decltype(&cublasLtMatrixLayoutDestroy)>);
static_assert(same<decltype(ot_lt_api::prefer), decltype(&cublasLtMatmulPreferenceCreate)>);
static_assert(
    same<decltype(ot_lt_api::set_preference), decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(
    same<decltype(ot_lt_api::free_preference), decltype(&cublasLtMatmulPreferenceDestroy)>);
static_assert(same<decltype(ot_lt_api::choose), decltype(&cublasLtMatmulAlgoGetHeuristic)>);
static_assert(same<decltype(ot_lt_api::check), decltype(&cublasLtMatmulAlgoCheck)>);
static_assert(same<decltype(ot_lt_api::multiply), decltype(&cublasLtMatmul)>);
static_assert(same<decltype(ot_lt_api::version), decltype(&cublasLtGetVersion)>);

static_assert(sizeof(ot_lt_algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(ot_lt_choice) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(alignof(ot_lt_choice) == alignof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(ot_lt_choice, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo));
static_assert(offsetof(ot_lt_choice, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(ot_lt_choice, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(ot_lt_choice, waves) ==
              offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

struct number {
  int ours, theirs;
};
constexpr number numbers[] = {
    {0, CUBLAS_STATUS_SUCCESS},
    {OT_LT_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED},
    {OT_LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE},
    {OT_LT_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED},
    {OT_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED},
    {OT_LT_R_32F, CUDA_R_32F},
    {OT_LT_R_64F, CUDA_R_64F},
    {OT_LT_R_16BF, CUDA_R_16BF},
    {OT_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F},
    {OT_LT_COMPUTE_64F, CUBLAS_COMPUTE_64F},
    {OT_LT_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA},
    {OT_LT_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB},
    {OT_LT_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE},
    {OT_LT_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER},
    {OT_LT_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES},
    {OT_LT_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK},
    {OT_LT_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES},
    {OT_LT_ALIGNMENT_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES},
    {OT_LT_ALIGNMENT_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES},
    {OT_LT_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES},
    {OT_LT_NO_TRANSPOSE, CUBLAS_OP_N},
    {OT_LT_TRANSPOSE, CUBLAS_OP_T},
    {OT_LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT},
    {OT_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS},
    {OT_LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    {OT_LT_REDUCTION_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE},
};

constexpr int first_other() {
  constexpr int count = sizeof numbers / sizeof numbers[0];
  for (int i = 0; i < count; i++) {
    if (numbers[i].ours != numbers[i].theirs) return i;
  }
  return -1;
}
static_assert(first_other() == -1, "an enumerator of lt_api.h is another one in cublasLt.h");

}  // namespace
