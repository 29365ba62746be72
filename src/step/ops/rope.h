// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) in the half-rotation form of HF's rotate_half: element
// i of a head pairs with element i + rotary_dim/2, i < rotary_dim/2; elements from rotary_dim on,
// and all values, pass unchanged.
//
// OT_OP_ROPE_TABLE  table[p, i] = (cos, sin)(p * frequency(i)) * magnitude
//   no inputs; table [P, rotary_dim/2, 2] of the compute type, its P given by the builder; computed
//   in float64 and rounded once.
// OT_OP_ROPE        per q and k head: (a, b) -> (a cos - b sin, b cos + a sin) at positions[r]
//   qkv [R, (H+2G)*D] real, positions [R] i32 in [0, P), table -> y stored like qkv, may be qkv.
// OT_OP_ROPE_GRAD   the inverse rotation: (a, b) -> (a cos + b sin, b cos - a sin); dx may be dy.
// Attributes: num_heads, num_kv_heads, head_dim, rotary_dim (even, at most head_dim), rope_*.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_rope_table_info;
extern const ot_op_info ot_rope_info;
extern const ot_op_info ot_rope_grad_info;

// Radians per position of pair `i`, 0 <= i < rotary_dim/2. Pure.
double ot_rope_frequency(const ot_op_attributes *attributes, int64_t i);

// The factor of cosines and sines: 1 except for yarn. Pure.
double ot_rope_magnitude(const ot_op_attributes *attributes);

// Checks rotary_dim, positions and table of an op `op` that rotates R = `rows` rows.
ot_status ot_rope_check(const char *op, const ot_op_attributes *attributes, int64_t rows,
                        const ot_tensor_type *positions, const ot_tensor_type *table);
