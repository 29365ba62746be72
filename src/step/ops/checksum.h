// SPDX-License-Identifier: Apache-2.0
// A hash of the bits of a tensor, to compare computations that must agree bit by bit.
//
// OT_OP_CHECKSUM  x real, any shape -> acc s [1] i64 = sum over elements i of
//   mix(bits(x_i) + (i + 1) 0x9e3779b97f4a7c15) mod 2^64, bits as an unsigned integer, mix the
//   finalizer of splitmix64 (Steele, Lea, Flood 2014). The sum has the same bits in any order.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_checksum_info;
