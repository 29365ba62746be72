// SPDX-License-Identifier: Apache-2.0
// Draws from the distribution that a head gives each token, for another model to learn from
// (Anshumann et al. 2025): the expected weight of an id is its probability, whatever the number of
// draws. Logits are those of head.h, a chunk at a time.
//
// OT_OP_HEAD_DRAW  With attributes.draws = N > 0, draw j of a row inverts the cumulative sum of the
//   probabilities, in the order of ids, at (j + u_j) / N: one draw from each of N equal shares,
//   which has less variance than N free draws. u_j is uniform, draw j of the generator keyed by
//   keys[row]. ids [R, K] ascending, weights [R, K] = draws of the id / N; K = attributes.draw_ids.
//   More ids than K are limited as ot_draws_limit does. N = 0: the K most probable ids, with their
//   probabilities, which do not sum to 1: a biased choice.
//   logprob [R] of the target; entropy [R] = -sum of p log p, in nats.
//   A row whose target is masked, and a place without an id, has id 0, weight 0 and zeros.
#pragma once

#include "ops/kernel.h"

extern const ot_op_info ot_head_draw_info;

enum { OT_DRAWS_MAX = 127 };  // N at most

// Streams of the random numbers of a key: places of draws, and what ot_draws_limit draws.
enum { OT_DRAW_PLACES = 0x74656163, OT_DRAW_LIMITS = 0x6c696d69 };

// The draws of one id.
typedef struct ot_drawn {
  int32_t id, count;
} ot_drawn;

// Place of draw `j` of `draws` in [0, 1), for the generator keyed by `key`.
double ot_draw_place(uint64_t key, int64_t j, int64_t draws);

// Reduces drawn [num] to at most `most` ids and returns their number. The most frequent stay, the
// lowest on ties; what the others have goes to one of them, drawn in proportion, so that the
// expected count of every id stays what it was.
int64_t ot_draws_limit(ot_drawn *drawn, int64_t num, int64_t most, uint64_t key);
