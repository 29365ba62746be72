// SPDX-License-Identifier: Apache-2.0
// MoE routing. A token has S slots: k (attributes.experts_per_token) when tokens choose experts, E
// when experts choose tokens. Everything is in the compute type.
//
// OT_OP_ROUTE  s = softmax(logits) or sigmoid(logits); c = s + bias if given
//   logits [R, E], whole? [n*R, E] compute type, bias? [E] real
//   -> gates [R, S] compute type, experts [R, S] i32
//   Tokens choose the k largest of c, the lower index among equals, largest first; only among the
//   groups_per_token groups of E/num_groups experts whose two largest c have the largest sums
//   (DeepSeek-AI 2024, sec. 2.1.2). gates = scale * s, divided by the sum of the s of the token's
//   experts if renormalise. The bias affects the choice but no gate, so no loss has a gradient with
//   respect to it; its accumulator holds the load instead (route_balance.h).
//   drop_by_position, drop_by_score: of the tokens of a sequence (ot_route_tokens) an expert keeps
//   the first `capacity`, or those with the largest gates, the first among equals. A dropped slot
//   has gate 0 and holds -1 - expert. expert_choice (Zhou et al. 2022): of each sequence an expert
//   takes the `capacity` tokens with the largest s. Slot e of a token is expert e, or -1 - e if
//   expert e did not take it.
//   The last three need whole sequences. Where these are sharded, `whole` has the logits of all n
//   ranks of the sequence, tp fastest, then cp. R rows of it, from row first_row of the block of
//   rank context_index on, are this rank's, and only their choice is output. Rows are put in
//   sequence order (ot_position_in_sequence) before the choice.
// OT_OP_ROUTE_GRAD  dlogits + partial from dgates, with the choice held fixed, so that the rows of
//   other ranks do not contribute.
// OT_OP_SORT_BY_EXPERT  the permutation that sorts rows by expert, then by slot.
//   place [R, S*P] the row of each slot, -1 for one without an expert; offsets [E + 1]. With P
//   expert_copies a slot has P rows, each in its own plane of N/P rows; the planes are alike.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_route_info;
extern const ot_op_info ot_route_grad_info;
extern const ot_op_info ot_route_order_info;

// S: slots per token. Pure.
int64_t ot_route_slots(const ot_op_attributes *attributes);

// Experts of this rank. Pure.
int64_t ot_route_local_experts(const ot_op_attributes *attributes);

// P: number of ranks that a row is sent to. Pure.
int64_t ot_route_copies(const ot_op_attributes *attributes);

// S*P. Pure.
int64_t ot_route_destinations(const ot_op_attributes *attributes);

// Most sequences that `tokens` consecutive tokens of a rank can belong to. Pure.
int64_t ot_route_sequences(const ot_op_attributes *attributes, int64_t tokens);

// N: most rows of all experts together for `tokens` tokens, for any routing. Pure.
int64_t ot_route_rows(const ot_op_attributes *attributes, int64_t tokens);

// The rows in use by `tokens` tokens when all experts have equal loads: less than all when
// sequences are sharded, since one rank may get most of a capacity. Pure.
int64_t ot_route_even_rows(const ot_op_attributes *attributes, int64_t tokens);

// The rows in use, of N rows or of B rows of an all-to-all-v, when all experts have equal loads.
// Pure.
double ot_route_used(const ot_op_attributes *attributes, int64_t rows);

// T: tokens of a sequence over all ranks of cp.
static inline int64_t ot_route_tokens(const ot_op_attributes *attributes) {
  const int ranks = attributes->context_size > 1 ? attributes->context_size : 1;
  return attributes->sequence_length * ranks;
}

// The expert of a slot, kept or dropped.
static inline int64_t ot_route_expert(int32_t slot) { return slot >= 0 ? slot : -1 - slot; }
