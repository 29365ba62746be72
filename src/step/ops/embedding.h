// SPDX-License-Identifier: Apache-2.0
// Token embedding, with learned positions (Radford et al. 2019: gpt2) and a factor on the token
// rows (gemma: sqrt(C)) where the model has them.
//
// OT_OP_EMBEDDING      y[r,:] = s * table[tokens[r],:] + position_table[positions[r],:]
//   tokens [R] i32 in [0, V); table [V, C] real; positions? [R] i32 in [0, P); position_table? [P,
//   C] real, both or neither. s = attributes.scale, where 0 means 1; a scale together with
//   positions is refused, so that one gradient serves both tables. y [R, C] is stored like the
//   table, or as the dtype that the caller put into out[0] before infer.
// OT_OP_EMBEDDING_GRAD acc dtable[tokens[r],:] += s * dy[r,:], rows in order
//   dy [R, C] real, tokens [R] i32; dtable [V, C] real. If it is narrower than the compute type,
//   each of its rows is rounded once, after all its rows of dy are added.
//   Every thread owns a range of columns, so the order of sums never depends on the threads.
// OT_OP_POSITION_GRAD  acc dposition_table[positions[r],:] += dy[r,:], likewise
//
// A vocabulary shard, attributes.group_size > 1, has rows [first_vocab, first_vocab + V) of a
// larger table. For a token outside the shard y[r] is 0, without the position row, and dtable is
// unchanged. So y reduced over the shards equals the lookup in the whole table, since exactly one
// shard contributes. The gradient of the reduced y is equal on all shards and gives the whole
// dposition_table on each. Without shards, token ids must be in [0, V): the kernel does not check
// them.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_embedding_info;
extern const ot_op_info ot_embedding_grad_info;
extern const ot_op_info ot_position_grad_info;
