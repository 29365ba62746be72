// SPDX-License-Identifier: Apache-2.0
// head_loss and head_evaluate (head.h) taken apart, for a vocabulary that is cut over k ranks:
// attributes.group_size = k (0: 1), group_index = this one, and w [V, C] are rows [first_vocab,
// first_vocab + V) of the whole table. What ranks must tell each other is three numbers a row
// (Shoeybi et al. 2019, sec. 3); a collective cannot stand inside an op, so a chunk of rows,
// [first_row, first_row + r) with r = attributes.chunk_rows, is an op here, and the graph writes:
//
//   for each chunk, first to last, of n = ot_head_chunk_rows(attributes, R, ceil(whole V / k)) rows
//   (the last one of the rest):
//     e, statistics = head_statistics(x, w, targets)
//     all_statistics = all_gather(statistics)                 left out when k = 1
//     dlogits = head_dlogits(e, all_statistics, targets, inverse_tokens)      effect loss
//     dx = head_gradient(dx of the chunk before or absent, dlogits, x, w)     acc dw
//   but head_gradient_last for the last chunk: the same, and the root of the derivative, since only
//   then dx is whole. Its VJP hands dx over as the gradient of x, as that of head_loss does. dx is
//   this shard's part of a sum over the k ranks, so the dual of the all_gather or retype that x
//   came by makes it whole.
//   To evaluate: head_statistics, all_gather, head_count. Nobody reads e then.
//
// OT_OP_HEAD_STATISTICS  e [r, V] compute type = exp(logit - m) with logits as in head.h, with a
//   soft cap times its slope, which head_dlogits then has in e and takes for the target from its
//   logit;
//   statistics [r, 3] f64 = m (the row's largest logit in the shard), sum of e, logit of the target
//   or -inf where another shard has it. In masked rows (target < 0) e is 0, statistics 0, 0, -inf.
// OT_OP_HEAD_DLOGITS  With M = max m_i and S = sum_i s_i exp(m_i - M) in the order of ranks i, in
//   float64: dlogits = (e exp(m - M) / S - onehot(target)) * inverse_tokens, may be e;
//   loss += sum of nats over unmasked rows * inverse_tokens, nats = log S + M - logit of the
//   target. Every rank adds the same loss: who counts it is for the schedule to say.
// OT_OP_HEAD_GRADIENT, _LAST  dx rows of the chunk = dlogits w, acc dw = dlogits^T x rows
//   dx [R, C] stored like x, may be dx_before; other rows are those of dx_before before the chunk,
//   undefined behind it. dw? [V, C] real.
// OT_OP_HEAD_COUNT  loss_sum += sum of nats, token_count += unmasked rows
// One shard has the bits of head_loss but for the order in which the losses of chunks are added.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_statistics_info;
extern const ot_op_info ot_head_dlogits_info;
extern const ot_op_info ot_head_gradient_info;
extern const ot_op_info ot_head_gradient_last_info;
extern const ot_op_info ot_head_count_info;

extern const ot_kernel_entry ot_head_parts_cpu_f32[];
extern const ot_kernel_entry ot_head_parts_cpu_f64[];

enum { OT_HEAD_STATISTICS = 3 };  // numbers a row

// k: the shards of the vocabulary.
int64_t ot_head_shards(const ot_op_attributes *attributes);
