// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: residual additions, dropout, maxima for the metrics, conversions, zeroing.
//
// OT_OP_ADD      a, b real of equal shapes, any rank -> y = a + b stored like a; may be a.
// OT_OP_BIAS     x [R, C], bias? [C], residual? [R, C] real -> y = x + (residual + bias); may be x.
//   y is stored like x. The same additions in the same order as linear, for when the GEMM output is
//   reduced over ranks first.
// OT_OP_GATE     x [R, C] real, logits [R, 1] compute type, residual? [R, C] real
//   -> y = residual + sigmoid(logit of the row) * x, stored like x; may be x.
// OT_OP_GATE_GRAD  dy, x [R, C] real, logits [R, 1] -> dx = sigmoid(logit) * dy, may be dy;
//   dlogits [R, 1] compute type = s (1 - s) * sum over the row of dy * x, s = sigmoid(logit).
// OT_OP_DROPOUT  x [R, C] real, sample_ids [B] i64 -> y, may be x
//   y = x / (1 - p) where kept, 0 where dropped, p = attributes.dropout (Srivastava et al. 2014,
//   inverted). With T = attributes.sequence_length, row r is row q = first_row + r of B * T, so row
//   q % T of sample s = sample_ids[q / T]. Its position t in the sequence is q % T or, with
//   context_size > 1, the position of that token of block context_index: zig-zag for a ring
//   (zigzag.h), context_index * T + q % T for Ulysses. Column c is kept when word c % 4 of
//     ot_rng_philox(seed, rng_stream, counter_low = t << 32 | c / 4, counter_high = s)
//   is at least p * 2^32 (rounded down). So a mask depends only on sample, position and column, not
//   on batch shape, layout, threads or earlier draws.
// OT_OP_DROPOUT_GRAD  dy [R, C], sample_ids [B] -> dx = dy under the same mask; may be dy.
// OT_OP_ABSMAX   x real, any shape -> effect m[1] f64 = max(m, max|x|); NaN counts as infinity.
// OT_OP_CAST     x real -> y of the dtype and shape that the builder gives, rounded once to nearest
//   even (float64 to bf16: through float32).
// OT_OP_ZERO     -> y = 0, any dtype and shape.
// OT_OP_INVERSE  n [1] f64 -> y [1] f64 = n > 0 ? 1 / n : 0; may be n.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_add_info;
extern const ot_op_info ot_bias_info;
extern const ot_op_info ot_gate_info;
extern const ot_op_info ot_gate_grad_info;
extern const ot_op_info ot_dropout_info;
extern const ot_op_info ot_dropout_grad_info;
extern const ot_op_info ot_absmax_info;
extern const ot_op_info ot_cast_info;
extern const ot_op_info ot_zero_info;
extern const ot_op_info ot_inverse_info;
