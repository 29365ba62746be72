// SPDX-License-Identifier: Apache-2.0
// Copies between the layouts of context-parallel attention. The ring (Liu et al. 2023) sends keys
// and values around and keeps their gradients separate; Ulysses (Jacobs et al. 2023) converts
// sequence shards to head shards. c = attributes.context_size ranks, R = B * t tokens of a rank, t
// = attributes.sequence_length tokens of each sequence. Pure copies without arithmetic.
//
// OT_OP_KV_SLICE       qkv [R, Q] real -> kv [R, 2GD] stored alike: its k|v part
// OT_OP_QKV_JOIN       dq [R, HD], dkv [R, 2GD] compute type -> dqkv [R, Q] of the type that out[0]
//                      is given (compute when it is not), rounded once
// OT_OP_HEADS_SCATTER  x [R, W] real -> y [c*R, W/c] stored alike: rows j*R.. are the share of rank
//                      j, query heads [jH/c, (j+1)H/c) and its kv heads. W = Q packed q|k|v, each
//                      share packed q|k|v too; or H*D when num_kv_heads is 0. c divides H and G.
//                      These attributes count the heads before the scatter.
// OT_OP_HEADS_GATHER   y [c*R, W/c] -> x [R, W]: its inverse and its transpose
// OT_OP_SEQUENCE_JOIN  z [c*R, ...] -> y [c*R, ...], any type, rank 1 or 2. z has the rows of rank
//                      j, which are rows j*t .. of each whole sequence, at j*R..; y has row (b,
//                      place) at b * c*t + place. Attention then takes sequence_length c*t.
// OT_OP_SEQUENCE_SPLIT y -> z: its inverse and its transpose
// attributes: threads, sequence_length (t), num_heads, num_kv_heads, head_dim, context_size.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_kv_slice_info;
extern const ot_op_info ot_qkv_join_info;
extern const ot_op_info ot_heads_scatter_info;
extern const ot_op_info ot_heads_gather_info;
extern const ot_op_info ot_sequence_join_info;
extern const ot_op_info ot_sequence_split_info;
