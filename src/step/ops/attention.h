// SPDX-License-Identifier: Apache-2.0
// Causal attention of a micro-batch of B = R / T sequences with grouped queries, a sliding window
// and documents, without any T x T tensor (online softmax: Milakov and Gimelshein 2018; tiles and
// the backward from lse: Dao et al. 2022).
//
// A row of qkv is H query heads, then G key heads, then G value heads, each of D. Query head h uses
// key and value head h / (H / G). Query i of a sequence sees key j of it when
//   doc_start[i] <= j <= i and (window == 0 or i - window < j).
// OT_OP_ATTENTION, s_ij = scale * q_i . k_j over visible j, with a soft cap c = soft_cap > 0
//   c tanh(that / c), p_ij = exp(s_ij - lse_i):
//   o_i = sum_j p_ij v_j, lse_i = log sum_j exp(s_ij), max_logit = max(max_logit, max s_ij)
//   qkv [R, (H + 2G) D] real, doc_start? [R] int32 (absent: 0), sample_ids? [B] int64 (read when
//   dropout > 0), sinks? [h] real, h >= first_sink + H
//   -> o [R, H D] stored like qkv, lse [R, H] compute type, max_logit? [1] f64
//   A sink (Xiao et al. 2023) is one more score that every query of the head sees, without a value:
//   exp of sinks[first_sink + head] is added to the sum in lse, not to max_logit.
//   Under Ulysses each rank of cp has the whole sequence for this op; over a group
//   (attributes.group_size > 1) it stands for ring attention, which graph/expand.h lowers.
// OT_OP_ATTENTION_GRAD: the gradient of o with respect to qkv, from do, o and lse; dqkv is stored
//   like qkv. The order of each sum is independent of the number of threads. lse includes the
//   sinks.
// OT_OP_ATTENTION_SINKS_GRAD: acc dsinks of head a += sum over queries i of -exp(sink - lse_i)
//   do_i . o_i: its probability times the gradient of its score; 0 for the sinks of other heads.
//
// OT_OP_ATTENTION_BLOCK: one step of ring attention (Liu et al. 2023). This rank has the queries of
//   block context_index of a zig-zag sharding over context_size ranks (zigzag.h), sequence_length
//   tokens of each sequence, and reads the keys and values of block key_index: kv [R, 2GD], k|v per
//   token. i and j above, window and doc_start are positions in the whole sequence. The block is
//   merged with o and lse of earlier blocks (Milakov and Gimelshein 2018), with weights
//   w = exp(lse_before - lse): o = w o_before + (1 - w) o_block. A token that sees no key of the
//   block keeps its o and lse bit for bit; one that has seen no key so far has o = 0, lse = -inf.
//   qkv [R, Q] real (its q part is read), kv stored alike, doc_start?, sample_ids?, o_before?
//   [R, HD] and lse_before? [R, H] compute type, both or neither, sinks? [h], only for the first
//   block (which has no lse_before) -> o [R, HD] compute type, lse, max_logit?
// OT_OP_ATTENTION_BLOCK_GRAD: the contribution of a block to the gradients, with o and lse of all
//   blocks: dq = dq_before + ..., dkv = dkv_before + ..., compute type, the befores optional
//   (zero); do and o [R, HD] real of any type. Blocks may be added in any order; each order gives
//   other bits.
//
// Dropout sets p_ij of (sequence b, head h) to 0 or p_ij / (1 - dropout) after the sum in lse. It
// is dropped when word j % 4 of ot_rng_philox(seed, rng_stream, low, sample_ids[b]) is below
// dropout * 2^32, with low = ((first_head + h) * 2^24 + i) * 2^32 + floor(j / 4), i and j positions
// in the whole sequence. This allows at most 256 heads over all ranks and 2^24 positions.
// attributes: threads, sequence_length (T), num_heads, num_kv_heads, head_dim, window, scale,
// soft_cap, dropout, seed, rng_stream, first_head, first_sink, value_dim (if positive, columns of v
// and do from there on are zero); blocks also context_size, context_index, key_index.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_attention_info;
extern const ot_op_info ot_attention_grad_info;
extern const ot_op_info ot_attention_sinks_grad_info;
extern const ot_op_info ot_attention_block_info;
extern const ot_op_info ot_attention_block_grad_info;

enum {
  OT_ATTENTION_QUERIES = 64,  // queries per tile
  OT_ATTENTION_KEYS = 128,    // keys per tile
};

// True for the kinds that read the keys of another tensor.
bool ot_attention_is_block(ot_op_kind kind);

// FLOPs per query and key outside GEMMs: what happens to the score (kernels/attention_score.h) and
// the softmax.
int ot_attention_score_flops(const ot_op_attributes *attributes);
