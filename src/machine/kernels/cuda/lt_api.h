// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt 13 that products use, declared here so that neither its headers nor the
// library are needed to build. Values and sizes are those of cublasLt.h 13.1;
// tests/cuda/lt_abi.cc compares them where the header is.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ot_lt_handle ot_lt_handle;
typedef struct ot_lt_description ot_lt_description;
typedef struct ot_lt_layout ot_lt_layout;
typedef struct ot_lt_preference ot_lt_preference;

typedef struct ot_lt_algorithm {
  uint64_t words[8];
} ot_lt_algorithm;

typedef struct ot_lt_choice {
  ot_lt_algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
} ot_lt_choice;

enum {
  OT_LT_NOT_INITIALIZED = 1,  // cublasStatus_t
  OT_LT_INVALID_VALUE = 7,
  OT_LT_EXECUTION_FAILED = 13,
  OT_LT_NOT_SUPPORTED = 15,
  OT_LT_R_32F = 0,  // cudaDataType
  OT_LT_R_64F = 1,
  OT_LT_R_16BF = 14,
  OT_LT_COMPUTE_32F = 68,  // cublasComputeType_t
  OT_LT_COMPUTE_64F = 70,
  OT_LT_TRANSPOSE_A = 3,  // cublasLtMatmulDescAttributes_t
  OT_LT_TRANSPOSE_B = 4,
  OT_LT_EPILOGUE = 7,
  OT_LT_BIAS_POINTER = 8,
  OT_LT_WORKSPACE_BYTES = 1,  // cublasLtMatmulPreferenceAttributes_t
  OT_LT_REDUCTION_MASK = 3,
  OT_LT_ALIGNMENT_A = 5,   // then B, C, D
  OT_LT_NO_TRANSPOSE = 0,  // cublasOperation_t
  OT_LT_TRANSPOSE = 1,
  OT_LT_EPILOGUE_DEFAULT = 1,  // cublasLtEpilogue_t
  OT_LT_EPILOGUE_BIAS = 4,
  OT_LT_REDUCTION_COMPUTE_TYPE = 2,  // cublasLtReductionScheme_t
  OT_LT_REDUCTION_OUTPUT_TYPE = 4,
};

// All return a cublasStatus_t, 0 for success.
typedef struct ot_lt_api {
  void *library;
  int (*create)(ot_lt_handle **handle);
  int (*destroy)(ot_lt_handle *handle);
  int (*describe)(ot_lt_description **description, int compute, int scale);
  int (*set_description)(ot_lt_description *description, int attribute, const void *value,
                         size_t bytes);
  int (*forget)(ot_lt_description *description);
  int (*lay_out)(ot_lt_layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*free_layout)(ot_lt_layout *layout);
  int (*prefer)(ot_lt_preference **preference);
  int (*set_preference)(ot_lt_preference *preference, int attribute, const void *value,
                        size_t bytes);
  int (*free_preference)(ot_lt_preference *preference);
  int (*choose)(ot_lt_handle *handle, ot_lt_description *description, ot_lt_layout *a,
                ot_lt_layout *b, ot_lt_layout *c, ot_lt_layout *d, ot_lt_preference *preference,
                int wanted, ot_lt_choice *choices, int *found);
  int (*check)(ot_lt_handle *handle, ot_lt_description *description, ot_lt_layout *a,
               ot_lt_layout *b, ot_lt_layout *c, ot_lt_layout *d, const ot_lt_algorithm *algorithm,
               ot_lt_choice *result);
  int (*multiply)(ot_lt_handle *handle, ot_lt_description *description, const void *alpha,
                  const void *a, ot_lt_layout *a_layout, const void *b, ot_lt_layout *b_layout,
                  const void *beta, const void *c, ot_lt_layout *c_layout, void *d,
                  ot_lt_layout *d_layout, const ot_lt_algorithm *algorithm, void *workspace,
                  size_t workspace_bytes, void *stream);
  size_t (*version)(void);
} ot_lt_api;

// Opens the library. OT_ENVIRONMENT, naming what was searched, if it is missing. An emulated device
// may have none: `library` is null and products run by the kernel of our own.
ot_status ot_lt_open(ot_lt_api *api);
void ot_lt_close(ot_lt_api *api);
