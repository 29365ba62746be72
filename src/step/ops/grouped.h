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

// Kernels round the rows of an expert up to this unit, a multiple of the register tile of every
// target (register_tile.h).
enum { OT_GROUPED_ROWS = 8 };
