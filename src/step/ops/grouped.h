// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM over rows that are sorted by expert, one matrix per expert: rows [offsets[e],
// offsets[e + 1]) are multiplied by w[e], which is rows [e * O, (e + 1) * O) of one stored matrix.
//
// OT_OP_GROUPED_LINEAR     y = x w[e]^T + bias[e]
//                                            x [N, C], w [E*O, C] real, offsets [E + 1] i32,
//                                            bias? [E*O] real -> y [N, O] stored like x
// OT_OP_GROUPED_LINEAR_DX  dx = dy w[e]      dy [N, O], w, offsets -> dx [N, C] stored like dy
// OT_OP_GROUPED_LINEAR_DW  acc dw[e] = the sum over rows of e of dy^T x
//                                            dy, x, offsets -> dw [E*O, C] real, rounded once;
//                                            acc dbias? [E*O]: the sum of dy
// Rows from offsets[E] on are padding: their results are zero, and dw ignores them. A row of y or
// dx is summed in index order over the contraction. So it depends only on that row and the matrix,
// not on the load of the expert (a BLAS may change the order with the number of rows).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_grouped_linear_info;
extern const ot_op_info ot_grouped_linear_dx_info;
extern const ot_op_info ot_grouped_linear_dw_info;

// Rounding units of the kernels: multiples of the register tile of every target (register_tile.h).
enum { OT_GROUPED_ROWS = 8, OT_GROUPED_COLUMNS = 64 };

// The blocking of one op; each work item is an expert and a block of columns.
typedef struct ot_grouped_layout {
  int64_t E;
  int64_t tile;      // rows of y or dx per tile, a multiple of OT_GROUPED_ROWS
  int64_t block;     // columns of y or dx, or rows of dw, per work item
  int64_t depth;     // of the contraction (dw: rows that are added at a time)
  int64_t matrix;    // scratch elements of a thread for a block of w, ...
  int64_t operand;   // ... for a tile of rows
  int64_t result;    // ... and for a tile of results (dw: if stored in bf16)
  int64_t elements;  // total, a multiple of 16
} ot_grouped_layout;

// Pure.
ot_grouped_layout ot_grouped_layout_of(const ot_op_attributes *attributes, ot_op_kind kind,
                                       const ot_op_types *types);
