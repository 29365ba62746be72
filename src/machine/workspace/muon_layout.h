// SPDX-License-Identifier: Apache-2.0
// Offsets of the regions of OT_OP_MUON's workspace, in bytes. Pure.
#pragma once

#include "ops/op.h"

typedef struct ot_muon_layout {
  int64_t x, y;  // [O, C] compute type: the iterate and the next one
  int64_t a, b;  // [s, s] compute type, s = min(O, C): the Gram matrix and the polynomial in it
  int64_t sums;  // to the end: [ot_flat_blocks, 2] f64; on a GPU [ot_cuda_flat_blocks, 2] f64 and
                 // one more
} ot_muon_layout;

static inline ot_muon_layout ot_muon_layout_of(int64_t rows, int64_t columns, ot_dtype compute) {
  const int64_t s = rows < columns ? rows : columns;
  const int64_t matrix = (rows * columns * ot_dtype_bytes(compute) + 63) / 64 * 64;
  const int64_t square = (s * s * ot_dtype_bytes(compute) + 63) / 64 * 64;
  return (ot_muon_layout){.x = 0,
                          .y = matrix,
                          .a = 2 * matrix,
                          .b = 2 * matrix + square,
                          .sums = 2 * (matrix + square)};
}
