// SPDX-License-Identifier: Apache-2.0
// Where the rows of one rank of context parallelism lie in the whole sequence. The zig-zag cut
// makes 2c pieces of a sequence and gives rank r pieces r and 2c-1-r, so that every rank has the
// same number of (query, visible key) pairs, in every step of a ring. Local rows are in the order
// of their places, so what a query sees of another rank's rows is one range of them. Pure.
#pragma once

#include "ops/op.h"

// `rows` rows of a sequence in two runs: row i < half is at place start[0] + i, the others at
// start[1] + i - half.
typedef struct ot_places {
  int64_t rows, half;
  int64_t start[2];
} ot_places;

// A whole sequence.
static inline ot_places ot_places_whole(int64_t rows) {
  return (ot_places){.rows = rows, .half = rows, .start = {0, rows}};
}

// The rows of rank `index` of `context_size` (0 and 1: the whole), `rows` of each sequence; even
// when there are several ranks.
static inline ot_places ot_places_of(int64_t rows, int context_size, int index) {
  if (context_size <= 1) return ot_places_whole(rows);
  const int64_t half = rows / 2;
  return (ot_places){
      .rows = rows, .half = half, .start = {index * half, (2 * context_size - 1 - index) * half}};
}

// The place of a row; beyond the last row it goes on counting.
static inline int64_t ot_place(const ot_places *places, int64_t row) {
  return row < places->half ? places->start[0] + row : places->start[1] + row - places->half;
}

// `n` within [0, most].
static inline int64_t ot_rows_clamped(int64_t n, int64_t most) {
  return n < 0 ? 0 : n > most ? most : n;
}

// The place in the whole sequence of row `i` of the sequence_length rows that rank `index` of
// attributes.context_size has of it: zig-zag or, for Ulysses, one piece.
static inline int64_t ot_place_in_sequence(const ot_op_attributes *attributes, int index,
                                           int64_t i) {
  const int64_t rows = attributes->sequence_length;
  if (attributes->context == OT_CONTEXT_ULYSSES) return index * rows + i;
  const ot_places places = ot_places_of(rows, attributes->context_size, index);
  return ot_place(&places, i);
}

// How many rows lie before `place` (which may be negative); also the first row not before it.
static inline int64_t ot_rows_before(const ot_places *places, int64_t place) {
  return ot_rows_clamped(place - places->start[0], places->half) +
         ot_rows_clamped(place - places->start[1], places->rows - places->half);
}
