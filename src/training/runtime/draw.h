// SPDX-License-Identifier: Apache-2.0
// Drawing a token from logits.
#pragma once

#include <stdint.h>

#include "base/status.h"

// How a token is drawn: temperature, then top_k, top_p and min_p, as in transformers.
typedef struct ot_draw {
  double temperature;  // 0: the most probable token, lowest id on ties
  int64_t top_k;       // of the most probable tokens only; 0: all
  double top_p;        // of the fewest that have this probability together (Holtzman et al. 2020);
                       // 1: all
  double min_p;        // of those with this share of the largest probability; 0: all
  uint64_t seed;       // with `choice` and the number of the token it determines the draw
  uint64_t choice;     // distinguishes several texts of one request
} ot_draw;

// A token and its logit, later its probability.
typedef struct ot_scored_token {
  double value;
  int32_t id;
} ot_scored_token;

// The token number `index` of a text. logits [n]; scratch [n].
int32_t ot_draw_token(const ot_draw *draw, const double *logits, int64_t n, int64_t index,
                      ot_scored_token *scratch);

// best [count] receives the tokens with the largest logits, the largest first; count <= n.
void ot_draw_best(const double *logits, int64_t n, int count, ot_scored_token *best);
