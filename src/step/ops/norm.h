// SPDX-License-Identifier: Apache-2.0
// Normalisation over the columns of rows, with gradients that accumulate the gradients of other
// uses of x.
//
// OT_OP_RMSNORM    y = x * rstd * (w + norm_offset), rstd = 1 / sqrt(mean(x^2) + epsilon)
//   (Zhang and Sennrich 2019; norm_offset 1 is gemma's). x [R, C] real, w [C] real -> y [R, C]
//   stored like x, rstd [R] compute type.
// OT_OP_LAYERNORM  y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(mean((x - mean)^2) + epsilon)
//   (Ba et al. 2016). b? [C] real; mean [R] and rstd [R] compute type.
// OT_OP_RMSNORM_GRAD, with g = dy * (w + norm_offset) and h = x * rstd:
//   dx = rstd * (g - h * mean(g * h)) + partial, acc dw = sum over rows of dy * h
// OT_OP_LAYERNORM_GRAD, with g = dy * w and h = (x - mean) * rstd:
//   dx = rstd * (g - mean(g) - h * mean(g * h)) + partial, acc dw = sum dy * h, acc? db = sum dy
//   dy [R, C] real; partial? [R, C] real; dx [R, C] stored like dy; dw, db [C] real, each may be
//   absent. Sums over rows are accumulated by blocks of rows (blocks.h). A gradient may also write
//   y, with the bits that the forward op gives it (graph/recompute.h); it may be dy.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_rmsnorm_info;
extern const ot_op_info ot_rmsnorm_grad_info;
extern const ot_op_info ot_layernorm_info;
extern const ot_op_info ot_layernorm_grad_info;
