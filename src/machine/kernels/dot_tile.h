// SPDX-License-Identifier: Apache-2.0
// Products of rows: dots of a few vectors with a few others, in registers, over lanes of depth. The
// order of the sum of one dot depends on its depth only, not on the others, so results do not
// change with the number of rows that are computed together.
#pragma once

#include "kernels/register_tile.h"

#if defined(__AVX512F__)
enum { OT_DOT_ROWS = 6, OT_DOT_COLUMNS = 4 };
#else
enum { OT_DOT_ROWS = 4, OT_DOT_COLUMNS = 2 };
#endif

typedef ot_real ot_loose_vector
    __attribute__((vector_size(OT_VECTOR_BYTES), aligned(sizeof(ot_real))));

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define OT_HAS_SHUFFLES 1
#endif
#endif
#ifndef OT_HAS_SHUFFLES
#define OT_HAS_SHUFFLES 0
#endif

enum { OT_SHORT_LANES = 16 / (int)sizeof(ot_real) };
typedef ot_real ot_half_vector __attribute__((vector_size(OT_VECTOR_BYTES / 2)));
typedef ot_real ot_short_vector __attribute__((vector_size(16)));

// A vector that is read once into a register, although each use could read memory: gcc takes the
// latter to be free, but loads are what such a tile runs out of.
#if defined(__AVX__)
static inline ot_vector ot_vector_read(const ot_real *from) {
  ot_vector v = *(const ot_loose_vector *)from;
  __asm__("" : "+v"(v));
  return v;
}
#else
static inline ot_vector ot_vector_read(const ot_real *from) {
  return *(const ot_loose_vector *)from;
}
#endif

// dots[r][c] = sum over k < depth of a[r][k] b[c][k]
typedef struct ot_dot_tile {
  const ot_real *a[OT_DOT_ROWS];
  const ot_real *b[OT_DOT_COLUMNS];
  int64_t depth;
} ot_dot_tile;

// The sum of the lanes, by halves; in registers where the compiler can name halves.
#if defined(__AVX512F__) && OT_HAS_SHUFFLES
typedef int64_t ot_eight_words __attribute__((vector_size(64)));
typedef int64_t ot_four_words __attribute__((vector_size(32)));

static inline ot_real ot_vector_sum(ot_vector v) {
  const ot_eight_words w = (ot_eight_words)v;
  const ot_half_vector half = (ot_half_vector)__builtin_shufflevector(w, w, 0, 1, 2, 3) +
                              (ot_half_vector)__builtin_shufflevector(w, w, 4, 5, 6, 7);
  const ot_four_words h = (ot_four_words)half;
  const ot_short_vector lanes = (ot_short_vector)__builtin_shufflevector(h, h, 0, 1) +
                                (ot_short_vector)__builtin_shufflevector(h, h, 2, 3);
  if (OT_SHORT_LANES == 2) return lanes[0] + lanes[1];
  return (lanes[0] + lanes[OT_SHORT_LANES - 2]) + (lanes[1] + lanes[OT_SHORT_LANES - 1]);
}
#else
static inline ot_real ot_vector_sum(ot_vector v) {
  ot_real lane[OT_VECTOR_LANES];
  __builtin_memcpy(lane, &v, sizeof v);
#pragma GCC unroll 4
  for (int half = OT_VECTOR_LANES / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  }
  return lane[0];
}
#endif

// Adds what no whole vector holds.
static inline ot_real ot_dot_rest(const ot_real *a, const ot_real *b, int64_t count, ot_real sum) {
  for (int64_t k = 0; k < count; k++) sum = OT_KERNEL(ot_fused)(a[k], b[k], sum);
  return sum;
}

// `rows` and `columns` must be constants at the call.
static inline __attribute__((always_inline)) void ot_dot_multiply(
    const ot_dot_tile *t, const int rows, const int columns,
    ot_real dots[OT_DOT_ROWS][OT_DOT_COLUMNS]) {
  ot_vector sum[OT_DOT_ROWS][OT_DOT_COLUMNS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sum[r][c] = (ot_vector){0};
  }
  const int64_t whole = t->depth / OT_VECTOR_LANES * OT_VECTOR_LANES;
  for (int64_t k = 0; k < whole; k += OT_VECTOR_LANES) {
    ot_vector b[OT_DOT_COLUMNS];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) b[c] = ot_vector_read(t->b[c] + k);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      const ot_vector a = ot_vector_read(t->a[r] + k);
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++) sum[r][c] = ot_vector_fused(a, b[c], sum[r][c]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
      dots[r][c] = ot_vector_sum(sum[r][c]);
      if (whole == t->depth) continue;
      dots[r][c] = ot_dot_rest(t->a[r] + whole, t->b[c] + whole, t->depth - whole, dots[r][c]);
    }
  }
}

// The first `rows` of the tile; the others are not read.
static inline void ot_dot_rows(const ot_dot_tile *t, int rows,
                               ot_real dots[OT_DOT_ROWS][OT_DOT_COLUMNS]) {
  if (rows == 1) {
    // One stream of b at a time: memory is read at twice the rate of several.
    for (int c = 0; c < OT_DOT_COLUMNS; c++) {
      const ot_dot_tile column = {.a = {t->a[0]}, .b = {t->b[c]}, .depth = t->depth};
      ot_real dot[OT_DOT_ROWS][OT_DOT_COLUMNS];
      ot_dot_multiply(&column, 1, 1, dot);
      dots[0][c] = dot[0][0];
    }
  } else if (rows == 2) {
    ot_dot_multiply(t, 2, OT_DOT_COLUMNS, dots);
  } else if (rows == 4) {
    ot_dot_multiply(t, 4, OT_DOT_COLUMNS, dots);
  } else {
    ot_dot_tile full = *t;
    for (int r = rows; r < OT_DOT_ROWS; r++) full.a[r] = t->a[rows - 1];
    ot_dot_multiply(&full, OT_DOT_ROWS, OT_DOT_COLUMNS, dots);
  }
}
