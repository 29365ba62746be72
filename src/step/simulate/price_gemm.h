// SPDX-License-Identifier: Apache-2.0
// Cost of a GEMM on a GPU or TPU by its shape. Private to simulate/.
#pragma once

#include "describe/cluster.h"

// `batch` GEMMs of [rows, depth] with [depth, columns].
typedef struct ot_gemm_shape {
  double batch, rows, columns, depth;
  ot_dtype type;        // GEMM dtype; the device must have flops for it
  double result_bytes;  // moved per element of the result; 0: those of `type`
} ot_gemm_shape;

// Seconds. Tiles of the result are assigned to processors in waves, and the last wave takes as long
// as a full one. Takes the best of several tile sizes, as libraries do, and of split-K if there are
// few tiles. At least the time to move operands and result.
double ot_gemm_s(const ot_device_kind *device, const ot_gemm_shape *product);

double ot_gemm_flops(const ot_gemm_shape *product);
