// SPDX-License-Identifier: Apache-2.0
// All-to-all-v of tokens to the ranks of their experts and back, through buffers of fixed size. Of
// the n = group_size ranks of a group, P = expert_copies consecutive ranks share the columns of the
// same H = held_experts experts (etp), the next P those of the next H (ep). Each rank sorts its own
// rows by expert (ot_route_order), in P planes of copy_rows.
//
// A rank receives rows ordered by expert, then source rank, then row. Of that list pass j takes
// rows [j*B, (j+1)*B), B = exchange_rows: no token is dropped and no buffer grows, whatever the
// routing. All ranks run as many passes as the longest list needs.
//
//   of rank 0  | e0 e0 e1 |            list of rank 1, which has e1 and e2, in passes of 3:
//   of rank 1  | e0 e1 e2 |              e1 of 0 | e1 of 1 | e2 of 1
//
// OT_OP_ALL_TO_ALL_V_PLAN  the rows of a pass (round[0], or 0 without one). For each rank:
//   counts [n * (E+1)] i32, `offsets` of each rank's rows
//   -> home [n, 1, 2]  send splits: first row and number of rows sent to it; one run, since rows
//                      are sorted
//      here [n, H, 2]  recv splits: the same for the rows received from it, per expert
//      offsets [H + 1] first received row of each expert; rounds [1]
// OT_OP_ALL_TO_ALL_V       rows [N, ...] -> y [B, ...]: rows `home` of each rank, at rows `here`
// OT_OP_ALL_TO_ALL_V_BACK  rows [B, ...] -> y [N, ...], its reverse and transpose. Rows of other
// passes
//   keep their value: `before`, which y overwrites, or y itself with accumulate
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_exchange_plan_info;
extern const ot_op_info ot_exchange_info;
extern const ot_op_info ot_exchange_home_info;

// Most rows that a rank can receive in all passes from `tokens` tokens per rank, for any routing.
// Pure.
int64_t ot_all_to_all_v_max_rows(const ot_op_attributes *attributes, int64_t tokens);
