// SPDX-License-Identifier: Apache-2.0
// The one control construct: a body of ops that is run as often as a number in memory says.
//
// OT_OP_REPEAT
//   for round = 1 .. rounds[0] - 1: write `round`, run the attributes.repeated ops behind this one
//   carried_a?, carried_b?   any type
//   rounds [1] i32           read once, before the first round; 0 and 1: the body does not run
//   a?, b?                   what the body adds to and what is read behind it: carried_a and
//                            carried_b themselves, in place; without one, memory that the body and
//                            ops behind it fill, its type that of the value
//   round [1] i32            for the body alone
// The body has no repeat in it. What it makes is read in the body alone. Through an "acc" output
// with attributes.accumulate an op of it may add to a, to b, and to gradient accumulators; a body
// always adds to accumulators, which round 0, in front of the repeat, has written.
//
// It has no kernel, costs nothing and is not differentiated; neither it nor its body is emitted
// again.
#pragma once

#include "ops/op.h"

// Operands.
enum { OT_REPEAT_CARRIED = 2, OT_REPEAT_ROUNDS = 2, OT_REPEAT_ROUND = 2 };

extern const ot_op_info ot_repeat_info;
