// SPDX-License-Identifier: Apache-2.0
// Which experts a token goes to. A token has S slots: k (attributes.experts_per_token) where tokens
// choose, E where experts do. All is in the compute type.
//
// OT_OP_ROUTE  s = softmax(logits) or sigmoid(logits); c = s + bias where there is one
//   logits [R, E], whole? [n*R, E] compute type, bias? [E] real
//   -> gates [R, S] compute type, experts [R, S] i32
//   Tokens choose the k largest of c, the lower index among equals, largest first; only among the
//   groups_per_token groups of E/num_groups experts whose two largest c have the largest sums
//   (DeepSeek-AI 2024, sec. 2.1.2). gates = scale * s, divided by the sum of the s of the token's
//   experts if renormalise. The bias chooses, and is in no gate;
//   no loss has a gradient by it, and what stands where one would is the load (route_balance.h).
//   drop_by_position, drop_by_score: of the tokens of a sequence (ot_route_tokens rows) an expert
//   keeps the first `capacity`, or those with the largest gates, the first among equals. A slot
//   that is dropped has gate 0 and holds -1 - expert. expert_choice (Zhou et al. 2022): of each
//   sequence an expert takes the `capacity` tokens with the largest s. Slot e of a token is expert
//   e, or -1 - e if that did not take it.
//   The last three look at whole sequences. Where ranks have parts of them, whole has the logits of
//   all n of these ranks, those of tp fastest, then cp; R rows of it, from row first_row of the
//   piece of rank context_index on, are this rank's, and their share of the choice comes out. Rows
//   are put in the order of the sequence (ot_place_in_sequence) before anyone chooses.
// OT_OP_ROUTE_GRAD  dlogits + partial from dgates, with the choice held fixed, so that other ranks'
//   rows have no part in it.
// OT_OP_ROUTE_ORDER  rows sorted by expert, then by slot: the inverse of the choice, as positions.
//   place [R, S*P] the row of each slot, -1 for one that holds no expert; offsets [E + 1]. With P
//   expert_copies a slot has P rows, each in a plane of N/P of its own, planes alike.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_route_info;
extern const ot_op_info ot_route_grad_info;
extern const ot_op_info ot_route_order_info;

extern const ot_kernel_entry ot_route_cpu_f32[];
extern const ot_kernel_entry ot_route_cpu_f64[];

// S: slots of a token. Pure.
int64_t ot_route_slots(const ot_op_attributes *attributes);

// Experts that this rank has. Pure.
int64_t ot_route_held(const ot_op_attributes *attributes);

// P: ranks that a row goes to. Pure.
int64_t ot_route_copies(const ot_op_attributes *attributes);

// S*P. Pure.
int64_t ot_route_places(const ot_op_attributes *attributes);

// Sequences that the `tokens` rows of a rank can be of, whichever of its rows they are. Pure.
int64_t ot_route_sequences(const ot_op_attributes *attributes, int64_t tokens);

// N: rows that all experts together can have of `tokens` tokens, whatever they choose. Pure.
int64_t ot_route_rows(const ot_op_attributes *attributes, int64_t tokens);

// Those of them that `tokens` tokens have in use when all experts are chosen equally often: less
// than all where others have parts of their sequences, and one rank may get the most of a capacity.
// Pure.
int64_t ot_route_even_rows(const ot_op_attributes *attributes, int64_t tokens);

// Of N such rows, or B of an exchange, those in use when all experts are chosen equally often, as
// the attributes say. Pure.
double ot_route_used(const ot_op_attributes *attributes, int64_t rows);

// T: tokens of a sequence on all ranks of cp.
static inline int64_t ot_route_tokens(const ot_op_attributes *attributes) {
  const int ranks = attributes->context_size > 1 ? attributes->context_size : 1;
  return attributes->sequence_length * ranks;
}

// The expert that a slot names, whether it was kept or not.
static inline int64_t ot_route_expert(int32_t slot) { return slot >= 0 ? slot : -1 - slot; }
