// SPDX-License-Identifier: Apache-2.0
// Linear layers and their gradients, with w [O, C] as HF stores it.
//
// OT_OP_LINEAR     y = x w^T + bias + residual
//   x [R, C], w [O, C], bias? [O], residual? [R, O] real -> y [R, O] stored like x
// OT_OP_LINEAR_DX  dx = dy w + partial
//   dy [R, O], w [O, C], partial? [R, C] real -> dx [R, C] stored like dy
// OT_OP_LINEAR_DW  acc dw = dy^T x, acc? dbias = sum over rows of dy
//   dy [R, O], x [R, C] real -> dw? [O, C], dbias? [O] real (gradient accumulators)
// OT_OP_LINEAR_WIDE     y = x w^T + bias in the compute type, without rounding (router logits)
//   x [R, C], w [O, C], bias? [O] real -> y [R, O]; gradients: OT_OP_LINEAR_DW and
// OT_OP_LINEAR_WIDE_DX  dx = dy w + partial
//   dy [R, O] compute type, w [O, C], partial? [R, C] real -> dx [R, C] stored like w
// Sums are accumulated in the compute type and rounded once, when stored; on a GPU a bf16 product
// is also rounded before residual, partial or dw is added to it (docs/bits.md). Operands of another
// type are widened in the workspace, one block of outputs at a time, so that w is never copied
// whole.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_linear_info;
extern const ot_op_info ot_linear_dx_info;
extern const ot_op_info ot_linear_dw_info;
extern const ot_op_info ot_linear_wide_info;
extern const ot_op_info ot_linear_wide_dx_info;
