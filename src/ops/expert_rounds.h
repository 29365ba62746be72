// SPDX-License-Identifier: Apache-2.0
// What experts on other ranks make of rows that do not fit into the first round
// (expert_exchange.h), and its gradients. Composites: each stands for a repeat whose body is one
// round (graph/expand.h), so that what rounds hold is gone with them. Their backward sends rows
// again.
//
// OT_OP_MORE_ROUNDS     home[places of rounds >= 1] = down[e] (f(gate[e] row) * (up[e] row) * gate)
//   rows [N, C], row_gates [N], counts [n*(E+1)], rounds [1], gate_up [H*2F, C], down [H*C, F],
//   x [R, C], gates [R, S], place [R, S*P], bias? [H*2F] (of gate and up)
//   -> home [N, C], elsewhere undefined
//   x, gates and place, of which `rows` and `row_gates` are made, are for the gradients
// OT_OP_MORE_ROUNDS_DX  partial_rows [N, C], partial_row_gates [N], dhome [N, C], counts, rounds,
//   gate_up, down, x, gates, place, bias? -> drows [N, C], drow_gates [N]: the partials, filled in
// OT_OP_MORE_ROUNDS_DW  dhome, counts, rounds, gate_up, down, x, gates, place, bias?
//   -> acc dgate_up, acc ddown, acc? dbias: always added to
#pragma once

#include "ops/op.h"

extern const ot_op_info ot_more_rounds_info;
extern const ot_op_info ot_more_rounds_dx_info;
extern const ot_op_info ot_more_rounds_dw_info;
