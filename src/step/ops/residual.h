// SPDX-License-Identifier: Apache-2.0
// The mix of earlier outputs that a sub-layer reads under Attention Residuals (Kimi Team 2026,
// arXiv 2603.15031). Sources v_i of a token, N = n + 1 of them or n without `last`:
//   stack [n, R, C]  the embedding and the outputs of finished blocks
//   last? [R, C]     one more, after them: the partial sum of the current block, or the output of
//                    the block that has just ended
//
// OT_OP_RESIDUAL_ATTENTION
//   r_i = 1 / sqrt(mean(v_i^2) + epsilon), a = softmax_i(query . v_i * r_i), y = sum_i a_i v_i
//   query? [C] real: includes the norm's gain; absent: zero. y [R, C] stored like the stack;
//   a, r [R, N] compute type, both saved for the gradient.
// OT_OP_RESIDUAL_ATTENTION_GRAD, with t_i = dy . v_i and ds_i = a_i (t_i - sum_k a_k t_k):
//   dv_i = a_i dy + ds_i r_i (query - v_i (query . v_i) r_i^2 / C) + partial_i
//   acc? dquery = sum over rows and sources of ds_i r_i v_i
//   dstack and dlast are stored like the stack; dstack may overwrite its partial. Sums over rows
//   are accumulated by blocks of rows (blocks.h).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_residual_attention_info;
extern const ot_op_info ot_residual_attention_grad_info;
