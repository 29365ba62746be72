// SPDX-License-Identifier: Apache-2.0
// Permutation between tokens and rows sorted by expert. Each op is the gradient of the other.
//
// OT_OP_DISPATCH  rows[place[r, j, q]] = x[r], row_gates[place[r, j, q]] = gates[r, j] where
//   place >= 0; rows of a plane from offsets[E] on, which no slot uses, are zero, if there are
//   offsets
//   x [R, C] real, gates? [R, S] compute type, place [R, S*P] i32, offsets? [E + 1] i32
//   -> rows [N, C] stored like x, row_gates [N] compute type if there are gates
// OT_OP_COMBINE   y[r] = addend[r] + sum over j and q of rows[place[r, j, q]], gates[r, j] = sum
//   over q of row_gates[place[r, j, q]]; a slot with place -1 adds nothing and has gate 0
//   rows [N, C] real, row_gates? [N] compute type, place, offsets, addend? [R, C] real
//   -> y [R, C] stored like rows, gates [R, S] if there are row_gates
// A token's rows are added in the order of its slots, in the compute type, and rounded once. N is
// ot_route_rows, P ot_route_copies (route.h).
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_dispatch_info;
extern const ot_op_info ot_combine_info;
