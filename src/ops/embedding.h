// SPDX-License-Identifier: Apache-2.0
// Token embedding, with learned positions where the model has them (Radford et al. 2019: gpt2) and
// a factor on the token rows where it has one (gemma: sqrt(C)).
//
// OT_OP_EMBEDDING      y[r,:] = s * table[tokens[r],:] + position_table[positions[r],:]
//   tokens [R] i32 in [0, V); table [V, C] real; positions? [R] i32 in [0, P); position_table? [P,
//   C] real, both or neither. s = attributes.scale, where 0 means 1; a scale together with
//   positions is refused, so that one gradient serves both tables. y [R, C] is stored like the
//   table, or as the dtype that the caller put into out[0] before infer.
// OT_OP_EMBEDDING_GRAD acc dtable[tokens[r],:] += s * dy[r,:], rows in order
//   dy [R, C] real, tokens [R] i32; dtable [V, C] real. Where it is narrower than the compute type,
//   each of its rows is rounded once, after all rows of dy that belong to it.
//   Every thread owns a range of columns, so the order of sums never depends on the threads.
// OT_OP_POSITION_GRAD  acc dposition_table[positions[r],:] += dy[r,:], likewise
//
// A shard, attributes.group_size > 1, has rows [first_vocab, first_vocab + V) of a larger table.
// Where a token lies elsewhere y[r] is 0, without a position row, and dtable is not touched. So y
// summed over the shards equals that of the whole table, as one shard alone gives more than 0; the
// gradient of that sum, the same for all shards, makes the whole dposition_table on each.
// Without shards ids outside the table are the caller's fault: nothing checks them here.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_embedding_info;
extern const ot_op_info ot_embedding_grad_info;
extern const ot_op_info ot_position_grad_info;

extern const ot_kernel_entry ot_embedding_cpu_f32[];
extern const ot_kernel_entry ot_embedding_cpu_f64[];
