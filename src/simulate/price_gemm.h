// SPDX-License-Identifier: Apache-2.0
// What a matrix product takes on a GPU or TPU, by its shape. Private to simulate/.
#pragma once

#include "describe/cluster.h"

// `batch` products of [rows, depth] with [depth, columns].
typedef struct ot_gemm_shape {
  double batch, rows, columns, depth;
  ot_dtype type;  // that it multiplies in; the device has flops of it
} ot_gemm_shape;

// Seconds. Tiles of the result are dealt to the processors in waves, and the last wave takes as
// long as a full one; the best of some tile sizes is taken, as libraries do, and so is a cut of the
// depth where there are few tiles. Not less than its operands and result take to be moved.
double ot_gemm_s(const ot_device_kind *device, const ot_gemm_shape *product);

double ot_gemm_flops(const ot_gemm_shape *product);
