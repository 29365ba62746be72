// SPDX-License-Identifier: Apache-2.0
// Positions of the tokens of one context-parallel rank in the whole sequence. Zig-zag sharding
// splits a sequence into 2c blocks and gives rank r blocks r and 2c-1-r. So every rank has the same
// number of (query, visible key) pairs in every step of a ring. Local tokens are in sequence order,
// so the tokens of another rank that a query sees are one range. Pure.
#pragma once

#include "ops/op.h"

// `rows` tokens of a sequence in two runs: token i < half is at position start[0] + i, the others
// at start[1] + i - half.
typedef struct ot_positions {
  int64_t rows, half;
  int64_t start[2];
} ot_positions;

// A whole sequence.
static inline ot_positions ot_positions_whole(int64_t rows) {
  return (ot_positions){.rows = rows, .half = rows, .start = {0, rows}};
}

// The tokens of rank `index` of `context_size` (0 and 1: the whole), `rows` of each sequence; even
// when there are several ranks.
static inline ot_positions ot_positions_of(int64_t rows, int context_size, int index) {
  if (context_size <= 1) return ot_positions_whole(rows);
  const int64_t half = rows / 2;
  return (ot_positions){
      .rows = rows, .half = half, .start = {index * half, (2 * context_size - 1 - index) * half}};
}

// The position of a token; extrapolates beyond the last one.
static inline int64_t ot_token_position(const ot_positions *places, int64_t row) {
  return row < places->half ? places->start[0] + row : places->start[1] + row - places->half;
}

// `n` within [0, most].
static inline int64_t ot_rows_clamped(int64_t n, int64_t most) {
  return n < 0 ? 0 : n > most ? most : n;
}

// The position in the whole sequence of token `i` of the sequence_length tokens of rank `index` of
// attributes.context_size: zig-zag or, for Ulysses, one contiguous block.
static inline int64_t ot_position_in_sequence(const ot_op_attributes *attributes, int index,
                                              int64_t i) {
  const int64_t rows = attributes->sequence_length;
  if (attributes->context == OT_CONTEXT_ULYSSES) return index * rows + i;
  const ot_positions places = ot_positions_of(rows, attributes->context_size, index);
  return ot_token_position(&places, i);
}

// Number of tokens before `place` (which may be negative); also the first token not before it.
static inline int64_t ot_tokens_before(const ot_positions *places, int64_t place) {
  return ot_rows_clamped(place - places->start[0], places->half) +
         ot_rows_clamped(place - places->start[1], places->rows - places->half);
}
