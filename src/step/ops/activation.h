// SPDX-License-Identifier: Apache-2.0
// Pointwise nonlinearities and their gated forms (Shazeer 2020). attributes.activation names f:
//   gelu       x * (1 + erf(x / sqrt 2)) / 2
//   gelu_tanh  x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2
//   silu       x / (1 + exp(-x))
//   relu       max(x, 0), slope 0 at 0
//
// OT_OP_ACTIVATION       x [R, F] -> y = f(x), stored like x
// OT_OP_ACTIVATION_GRAD  dy, x [R, F] -> dx = dy * f'(x), stored like dy, may be dy
// OT_OP_GLU              x [R, 2F], a row is gate [F] | up [F], scale? [R] compute type,
//                        offsets? [E + 1] i32
//                        -> y [R, F] = f(gate) * up * scale, stored like x
// OT_OP_GLU_GRAD         dy [R, F], x [R, 2F], scale? [R], offsets?, with dz = dy * scale
//                        -> dx [R, 2F] = dz * f'(gate) * up | dz * f(gate),
//                           dscale [R] = sum of dy * f(gate) * up, where there is a scale
// A gradient may also write y, with the bits that the forward op gives it (graph/recompute.h); in
// GLU_GRAD it may be dy.
// With attributes.glu_limit = m > 0 the clamped form (OpenAI 2025, gpt-oss, sec. 2.2): gate is
// min(gate, m), up min(max(up, -m), m) + 1, and f silu of slope a = glu_alpha, x / (1 + exp(-a x));
// what is clamped has no gradient.
// Rows from offsets[E] on are padding (grouped.h): they are not read, and results are zero.
// The scale of an expert's row is the gate of its token. It is applied before the down projection,
// so the expert outputs need not be saved for the gradient of the gates.
// One pass over memory each; f and f' come from one exponential.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_activation_info;
extern const ot_op_info ot_activation_grad_info;
extern const ot_op_info ot_glu_info;
extern const ot_op_info ot_glu_grad_info;
