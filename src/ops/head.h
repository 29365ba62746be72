// SPDX-License-Identifier: Apache-2.0
// The final projection, logits = x w^T with w [V, C], with a soft cap c = attributes.soft_cap > 0
// c tanh(x w^T / c), and what is made of the logits. They exist
// for attributes.chunk_rows rows at a time (0: ot_head_layout_of chooses) and never whole, but in
// the output of head_logits. x [R, C] and w [V, C] real, targets [R] int32; a target below zero is
// masked. Sums over logits are made in the compute type by short runs and joined in float64.
//
// OT_OP_HEAD_LOSS      with p = softmax(logits) and nats = log(sum exp(logits)) - logits[target]:
//   dlogits = (p - onehot(target)) * inverse_tokens, 0 in masked rows, with a soft cap times its
//   slope 1 - (logit / c)^2
//   dx = dlogits w, acc dw = dlogits^T x, loss += sum of nats over unmasked rows * inverse_tokens
//   inverse_tokens [1] f64; dx [R, C] stored like x; dw? [V, C] real; loss [1] f64, summed over
//   rows in their order in float64. The forward op does all of the backward: recomputing logits
//   would cost a third of its products. Its VJP hands over dx, unscaled: the loss is the root.
//   A dw narrower than the compute type is rounded once a chunk: all of it widened would take more
//   memory than it saves.
// OT_OP_HEAD_EVALUATE  loss_sum [1] f64 += sum of nats, token_count [1] f64 += unmasked rows
// OT_OP_HEAD_SCORE     logprob [R] f64 = -nats (0 where masked), greedy [R] int32 = the lowest id
// with
//   the largest logit (-1 when logits are NaN)
// OT_OP_HEAD_LOGITS    logits [R, V] compute type
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_loss_info;
extern const ot_op_info ot_head_evaluate_info;
extern const ot_op_info ot_head_score_info;
extern const ot_op_info ot_head_logits_info;

extern const ot_kernel_entry ot_head_cpu_f32[];
extern const ot_kernel_entry ot_head_cpu_f64[];

// Rows of a chunk when `rows` rows meet `vocabulary` rows of w: attributes.chunk_rows or, where
// that is 0, as many as keep the logits in bounds; at most `rows`. Ranks that share a vocabulary
// give the largest of their shares, and so choose alike.
int64_t ot_head_chunk_rows(const ot_op_attributes *attributes, int64_t rows, int64_t vocabulary);

// The workspace, in elements of the compute type; -1 for a part that is not needed.
typedef struct ot_head_layout {
  int64_t chunk;   // rows whose logits exist at once
  int64_t stride;  // elements between rows of logits
  int64_t block;   // rows of w and dw that are widened at a time; V when both are of the compute
                   // type
  int64_t logits;  // [chunk, stride]
  int64_t x;       // [chunk, C] widened
  int64_t w;       // [block, C]: w or dw
  int64_t dx;      // [chunk, C] before narrowing
  int64_t nats;    // [chunk] f64
  int64_t elements;
} ot_head_layout;

ot_head_layout ot_head_layout_of(ot_op_kind kind, const ot_op_attributes *attributes,
                                 const ot_op_types *types);
