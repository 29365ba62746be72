// SPDX-License-Identifier: Apache-2.0
// Optimizer updates. Every tensor is stored in any real type; arithmetic is in the compute type,
// scalars and sums over tensors in float64, summed by blocks (blocks.h), so that the bits are
// independent of the threads.
//
// OT_OP_SUM_SQUARES  g, any shape -> acc s[1] f64 = sum of (scale g)^2
// OT_OP_CLIP_FACTOR  s [k] f64 -> norm[1] f64 = sqrt(s_0 + s_1 + ... in order),
//                    factor[1] f64 = clip > 0 ? min(1, clip / (norm + 1e-6)) : 1; NaN when norm
//                    is not finite, and then the ops below change nothing
// OT_OP_ADAMW, over n elements, with f = scalars[CLIP_FACTOR], c1, c2 = scalars[CORRECTION_1, _2],
//   a = scalars[LEARNING_RATE] * learning_rate_factor (Loshchilov and Hutter 2019):
//   m = beta1 m + (1 - beta1) f g;  v = beta2 v + (1 - beta2) (f g)^2
//   d = a c1 m / (sqrt(c2 v) + epsilon) + a weight_decay p;  p = p - d
// OT_OP_MUON, for one matrix [O, C] (Jordan et al. 2024; scale and decay: Liu et al. 2025,
// Moonlight):
//   m = beta1 m + (1 - beta1) f g;  u = beta1 m + (1 - beta1) f g
//   X = u / (|u| + 1e-7), then five times X = (3.4445 I - 4.7750 A + 2.0315 A^2) X, A = X X^T
//   (or the same on the other side when O > C)
//   d = a (0.2 sqrt(max(O, C)) X + weight_decay p);  p = p - d
// Both: p, m, v are read and written. With `master` present the weight is read from master, updated
// there, and p = round(master); p is then only written. stats? [2] f64 = sum of d^2, sum of p^2
// after (before rounding to storage), overwritten.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_sum_squares_info;
extern const ot_op_info ot_clip_factor_info;
extern const ot_op_info ot_adamw_info;
extern const ot_op_info ot_muon_info;

enum { OT_MUON_ITERATIONS = 5 };

// The op of an optimizer.
ot_op_kind ot_optimizer_op(ot_optimizer_name optimizer);
