// SPDX-License-Identifier: Apache-2.0
// Expert outputs for rows that overflow the first pass (expert_exchange.h), and their gradients.
// Composites: each stands for a loop whose body is one pass (graph/expand.h), so that activations
// of overflow passes are not saved. Both backward phases dispatch again.
//
// OT_OP_OVERFLOW_PASSES     home[rows of passes >= 1] = down[e] (f(gate[e] row) * (up[e] row) *
// gate)
//   rows [N, C], row_gates [N], counts [n*(E+1)], rounds [1], gate_up [H*2F, C], down [H*C, F],
//   x [R, C], gates [R, S], place [R, S*P], bias? [H*2F] (of gate and up)
//   -> home [N, C], undefined elsewhere
//   x, gates and place, from which `rows` and `row_gates` were made, are for the gradients
// OT_OP_OVERFLOW_PASSES_DX  partial_rows [N, C], partial_row_gates [N], dhome [N, C], counts,
// rounds,
//   gate_up, down, x, gates, place, bias? -> drows [N, C], drow_gates [N]: the completed partials
// OT_OP_OVERFLOW_PASSES_DW  dhome, counts, rounds, gate_up, down, x, gates, place, bias?
//   -> acc dgate_up, acc ddown, acc? dbias: always accumulated
#pragma once

#include "ops/op.h"

extern const ot_op_info ot_more_rounds_info;
extern const ot_op_info ot_more_rounds_dx_info;
extern const ot_op_info ot_more_rounds_dw_info;
