// SPDX-License-Identifier: Apache-2.0
// The final projection, logits = x w^T with w [V, C], or c tanh(x w^T / c) with a soft cap c =
// attributes.soft_cap > 0, and the loss, scores or output. Logits exist for attributes.chunk_rows
// tokens at a time (0: ot_head_logits_of chooses) and never all at once, except as output of
// head_logits. x [R, C] and w [V, C] real, targets [R] int32; a negative target is masked. Sums
// over logits are accumulated in the compute type over short runs and combined in float64.
//
// OT_OP_HEAD_LOSS      with p = softmax(logits) and nats = log(sum exp(logits)) - logits[target]:
//   dlogits = (p - onehot(target)) * inverse_tokens, 0 in masked rows, with a soft cap times its
//   slope 1 - (logit / c)^2
//   dx = dlogits w, acc dw = dlogits^T x, loss += sum of nats over unmasked rows * inverse_tokens
//   inverse_tokens [1] f64; dx [R, C] stored like x; dw? [V, C] real; loss [1] f64, summed over
//   tokens in order in float64. The forward op includes the whole backward: recomputing logits
//   would cost a third of its GEMMs. Its VJP returns dx unscaled: the loss is the root.
//   A dw narrower than the compute type is rounded once per chunk, on a GPU also the product of the
//   chunk (docs/bits.md): a widened copy would need more memory than it saves.
//   On a GPU the logits of bf16 x are rounded to bf16 if the compute type is float32 (docs/gpu.md).
//   Weighted targets, ids? [R, K] int32 and weights? [R, K] float32, replace the one target of each
//   row that is not masked: with W = sum of its weights,
//     nats = sum over k of weights[k] (log(sum exp(logits)) - logits[ids[k]])
//     dlogits = (W p - sum over k of weights[k] onehot(ids[k])) * inverse_tokens
//   Targets of a teacher have weights that sum to 1; a policy gradient has K = 1 and signed
//   weights. An id may occur twice; one of weight 0 may be any id below V. K = 1 with weight 1
//   gives the same bits as no weights. data_loss? [1] f64 += sum of nats of `targets`, unscaled.
// OT_OP_HEAD_EVALUATE  loss_sum [1] f64 += sum of nats, token_count [1] f64 += unmasked rows
// OT_OP_HEAD_SCORE     logprob [R] f64 = -nats (0 where masked), greedy [R] int32 = the lowest id
//   with the largest logit (-1 when logits are NaN), best? [R] f64 = its log-probability; where a
//   row is masked, these two are not defined. A chunk of masked rows costs nothing on the CPU.
//   sum? [R] f64: w is rows [first_vocab, first_vocab + V) of a vocabulary that is sharded,
//   and the outputs are those that the shards' results are joined from (ot_head_join_scores): sum =
//   sum of exp(logit - largest), best = largest, logprob = the target's logit or -inf, greedy an id
//   of the whole vocabulary
// OT_OP_HEAD_LOGITS    logits [R, V] compute type
// With attributes.independent_rows the products are those of ot_matrix_multiply_rows.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_loss_info;
extern const ot_op_info ot_head_evaluate_info;
extern const ot_op_info ot_head_score_info;
extern const ot_op_info ot_head_logits_info;

enum { OT_HEAD_IDS_MAX = 256 };  // K at most

// Checks the optional operands ids and weights, for ops that read `rows` of them.
ot_status ot_head_check_weights(const char *op, const ot_tensor_type *ids,
                                const ot_tensor_type *weights, int64_t rows);

// The results of OT_OP_HEAD_SCORE for a row.
typedef struct ot_row_score {
  double logprob, best;
  int32_t greedy;
} ot_row_score;

// The score of `target` (negative: none) in a row of V logits on the host, with the same bits as
// that of the CPU's kernel.
ot_row_score ot_head_score_row_f32(const float *row, int64_t V, int32_t target);
ot_row_score ot_head_score_row_f64(const double *row, int64_t V, int32_t target);

// One row in one shard of the vocabulary, as OT_OP_HEAD_SCORE gives it with `sum`.
typedef struct ot_shard_score {
  double target, largest, sum;
  int32_t greedy;
} ot_shard_score;

// The score of the row by its shards in order.
ot_row_score ot_head_join_scores(const ot_shard_score *shards, int count);

// Tokens per chunk for `rows` tokens and `vocabulary` rows of w: attributes.chunk_rows or, where
// that is 0, as many as bound the logits or, by back end, their memory if each needs `logit_bytes`;
// at most `rows`. Ranks with a sharded vocabulary pass the largest shard, so that all choose the
// same chunk.
int64_t ot_head_chunk_rows(const ot_op_attributes *attributes, int64_t rows, int64_t vocabulary,
                           int64_t logit_bytes);

// The logits that exist at once.
typedef struct ot_head_logits {
  int64_t chunk;   // tokens
  ot_dtype dtype;  // the compute type or, by back end, bf16 for the loss of bf16 x
} ot_head_logits;

ot_head_logits ot_head_logits_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                 const ot_op_types *types);
