// SPDX-License-Identifier: Apache-2.0
// The one loop construct: a body of ops whose trip count is a number in memory.
//
// OT_OP_REPEAT
//   for round = 1 .. rounds[0] - 1: write `round`, run the next attributes.repeated ops
//   carried_a?, carried_b?   any type
//   rounds [1] i32           read once, before the first iteration; 0 and 1: the body does not run
//   a?, b?                   loop-carried values, which the body adds to and later ops read:
//                            carried_a and carried_b in place; without one, memory that the body
//                            and later ops fill, of the type of the value
//   round [1] i32            read only in the body
// Loops do not nest. Values defined in the body are local to it. Through an "acc" output with
// attributes.accumulate an op of the body may add to a, to b, and to gradient accumulators; a body
// always adds to accumulators, because the first pass before the repeat has written them.
//
// It has no kernel and no cost and is not differentiated; neither it nor its body is recomputed.
#pragma once

#include "ops/op.h"

// Operands.
enum { OT_REPEAT_CARRIED = 2, OT_REPEAT_COUNT = 2, OT_REPEAT_INDEX = 2 };

extern const ot_op_info ot_repeat_info;
