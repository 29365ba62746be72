// SPDX-License-Identifier: Apache-2.0
// Linear maps of rows that are sorted by expert, one matrix for each: rows [offsets[e],
// offsets[e + 1]) meet w[e], which is stored as rows [e * O, (e + 1) * O) of one matrix.
//
// OT_OP_GROUPED_LINEAR     y = x w[e]^T + bias[e]
//                                            x [N, C], w [E*O, C] real, offsets [E + 1] i32,
//                                            bias? [E*O] real -> y [N, O] stored like x
// OT_OP_GROUPED_LINEAR_DX  dx = dy w[e]      dy [N, O], w, offsets -> dx [N, C] stored like dy
// OT_OP_GROUPED_LINEAR_DW  acc dw[e] = the sum over rows of e of dy^T x
//                                            dy, x, offsets -> dw [E*O, C] real, rounded once;
//                                            acc dbias? [E*O]: the sum of dy
// Rows from offsets[E] on belong to nobody: their results are zero, and dw knows nothing of them.
// A row of y or dx is a sum over the depth in its order, so that it depends on that row and the
// matrix alone, not on how many others chose the expert (a BLAS may sum in another order for
// another number of rows).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_grouped_linear_info;
extern const ot_op_info ot_grouped_linear_dx_info;
extern const ot_op_info ot_grouped_linear_dw_info;

extern const ot_kernel_entry ot_grouped_cpu_f32[];
extern const ot_kernel_entry ot_grouped_cpu_f64[];

// Units in which kernels round up: multiples of what any target's registers hold (register_tile.h).
enum { OT_GROUPED_ROWS = 8, OT_GROUPED_COLUMNS = 64 };

// How the products of one op are cut; each piece of work is an expert and a block of columns.
typedef struct ot_grouped_layout {
  int64_t E;
  int64_t tile;      // rows of y or dx that are made at a time, a multiple of OT_GROUPED_ROWS
  int64_t block;     // columns of y or dx, or rows of dw, that a piece makes
  int64_t depth;     // of the contraction (dw: rows that are added at a time)
  int64_t matrix;    // elements of scratch of a thread for a part of w, ...
  int64_t operand;   // ... for a tile of rows
  int64_t result;    // ... and for a tile of results (dw: where it is narrow)
  int64_t elements;  // of all of them, a multiple of 16
} ot_grouped_layout;

// Pure.
ot_grouped_layout ot_grouped_layout_of(const ot_op_attributes *attributes, ot_op_kind kind,
                                       const ot_op_types *types);
