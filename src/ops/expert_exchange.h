// SPDX-License-Identifier: Apache-2.0
// Rows on their way to the experts of other ranks and back, through buffers of a known number of
// rows. Of the n = group_size ranks of a group, P = expert_copies in a row have columns of the same
// H = held_experts experts (etp), the next P of the next H (ep). Each rank sorts its own rows by
// expert (ot_route_order), in P planes of copy_rows.
//
// What comes to a rank is in the order of its experts, then of sources, then of their rows. Of that
// list round j takes rows [j*B, (j+1)*B), B = exchange_rows: nothing is dropped, whatever is
// chosen, and nobody's buffer grows. Everyone makes as many rounds as the longest list needs.
//
//   of rank 0  | e0 e0 e1 |            list of rank 1, which has e1 and e2, in rounds of 3:
//   of rank 1  | e0 e1 e2 |              e1 of 0 | e1 of 1 | e2 of 1
//
// OT_OP_EXCHANGE_PLAN  which rows are in a round (round[0], or 0 without one). Of each rank:
//   counts [n * (E+1)] i32, `offsets` of each rank's rows
//   -> home [n, 1, 2]  first row and number of this rank's own rows that go to it: one run, since
//                      its rows are sorted
//      here [n, H, 2]  and of those that come from it, expert by expert
//      offsets [H + 1] first row of each expert among those that come; rounds [1]
// OT_OP_EXCHANGE       rows [N, ...] -> y [B, ...]: rows `home` of each rank, at rows `here`
// OT_OP_EXCHANGE_HOME  rows [B, ...] -> y [N, ...], the way back, its transpose. Rows of other
//   rounds keep what is there: `before`, in whose place y is, or y itself with accumulate
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_exchange_plan_info;
extern const ot_op_info ot_exchange_info;
extern const ot_op_info ot_exchange_home_info;

extern const ot_kernel_entry ot_exchange_cpu_f32[];
extern const ot_kernel_entry ot_exchange_cpu_f64[];

// Rows that a rank can get in all rounds together of `tokens` of each, whatever they choose. Pure.
int64_t ot_exchange_most_rows(const ot_op_attributes *attributes, int64_t tokens);
