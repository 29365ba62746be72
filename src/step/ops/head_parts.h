// SPDX-License-Identifier: Apache-2.0
// head_loss and head_evaluate (head.h) for a vocabulary that is sharded over k ranks:
// attributes.group_size = k (0: 1), group_index = this rank, and w [V, C] is rows [first_vocab,
// first_vocab + V) of the whole table. The ranks exchange three numbers per token (Shoeybi et al.
// 2019, sec. 3). A collective cannot run inside an op, so each op processes one chunk of tokens,
// [first_row, first_row + r) with r = attributes.chunk_rows, and the graph emits:
//
//   for each chunk, first to last, of n = ot_head_chunk_rows(attributes, R, ceil(whole V / k)) rows
//   (the last one of the rest):
//     e, statistics, pulls = head_statistics(x, w, targets, ids, weights)
//     all_statistics = all_gather(statistics)                 omitted when k = 1
//     dlogits = head_dlogits(e, all_statistics, targets, inverse_tokens, ids, weights, pulls)
//                                                             effects loss, data_loss
//     dx = head_gradient(dx of the previous chunk or absent, dlogits, x, w)   acc dw
//   with head_gradient_last for the last chunk: the same op, and the root of the derivative, since
//   dx is complete only then. Its VJP returns dx as the gradient of x, like that of head_loss. dx
//   is this shard's partial sum, and the dual of the all_gather or retype of x reduces it.
//   Evaluation: head_statistics, all_gather, head_count; e is unused. Without weighted targets
//   (head.h) ids, weights, pulls and data_loss are absent.
//
// OT_OP_HEAD_STATISTICS  e [r, V] compute type = exp(logit - m) with logits as in head.h; with a
//   soft cap multiplied by its slope, so that head_dlogits needs the slope only for the target,
//   from its logit;
//   statistics [r, 3] f64 = m (the token's largest logit in the shard), sum of e, logit of the
//   target or -inf if another shard has it. For masked tokens (target < 0) e is 0, statistics 0, 0,
//   -inf. With weights each token has a fourth statistic, the sum over its ids in the shard of
//   weights[k] logits[ids[k]], and pulls [r, K] = weights[k] times the slope of the soft cap, 0 for
//   ids of other shards.
// OT_OP_HEAD_DLOGITS  With M = max m_i and S = sum_i s_i exp(m_i - M) in the order of ranks i, in
//   float64: dlogits = (e exp(m - M) / S - onehot(target)) * inverse_tokens, may be e;
//   loss += sum of nats over unmasked tokens * inverse_tokens, nats = log S + M - logit of the
//   target. Every rank adds the same loss; the schedule decides which rank's loss is used. With
//   weights, W of a token: dlogits = (W e exp(m - M) / S - sum over k of pulls[k] onehot(ids[k])) *
//   inverse_tokens, nats = W (log S + M) - the sum of the fourth statistics; data_loss += nats of
//   the targets.
// OT_OP_HEAD_GRADIENT, _LAST  dx rows of the chunk = dlogits w, acc dw = dlogits^T x rows
//   dx [R, C] stored like x, may be dx_before; rows before the chunk are those of dx_before, rows
//   after it are undefined. dw? [V, C] real.
// OT_OP_HEAD_COUNT  loss_sum += sum of nats, token_count += unmasked rows
// One shard gives the bits of head_loss, except for the order in which chunk losses are added and,
// on a GPU, with bf16 x: there head_loss rounds the logits.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_statistics_info;
extern const ot_op_info ot_head_dlogits_info;
extern const ot_op_info ot_head_gradient_info;
extern const ot_op_info ot_head_gradient_last_info;
extern const ot_op_info ot_head_count_info;

enum { OT_HEAD_STATISTICS = 3, OT_HEAD_WEIGHTED = 4 };  // numbers per token

// k: the number of vocabulary shards.
int64_t ot_head_shards(const ot_op_attributes *attributes);

// `logit_bytes` of a chunk (ot_head_chunk_rows): e and, with bf16 x, the factor of the products.
int64_t ot_head_parts_logit_bytes(const ot_op_attributes *attributes, ot_dtype x);
