// SPDX-License-Identifier: Apache-2.0
// The inner loop of small GEMMs on cached data: a tile of C is held in vector registers (Goto and
// van de Geijn 2008) while a column of a is multiplied by a row of b. For GEMMs whose operands are
// produced and consumed at once, as in attention, where a BLAS would pack them again. Vectors are
// GCC's (fused.h).
#pragma once

#include <stdbool.h>

#include "kernels/fused.h"

#if defined(__AVX512F__)
enum { OT_TILE_ROWS = 8 };
#else
enum { OT_TILE_ROWS = 4 };
#endif

enum {
  OT_TILE_VECTORS = 2,
  OT_PANEL = OT_TILE_VECTORS * OT_VECTOR_LANES,  // columns of b per tile
};

// c[r][v] = start + sum over k < depth of a[r * a_row + k * a_depth] * b[k * b_stride + v] for
// OT_TILE_ROWS rows of `vectors` vectors. Every row of b and c is aligned to vectors.
typedef struct ot_register_tile {
  const ot_real *a;
  int64_t a_row, a_depth;
  const ot_real *b;
  int64_t b_stride;
  ot_real *c;
  int64_t c_stride;
  int64_t depth;
} ot_register_tile;

// Initial value of a tile: zero, c, or c times scale[v].
typedef enum ot_tile_start { OT_TILE_ZERO, OT_TILE_ADD, OT_TILE_SCALE } ot_tile_start;

// `vectors` (1 or 2) and `start` must be constants at the call, so that the tile stays in
// registers.
static inline __attribute__((always_inline)) void ot_tile_multiply(const ot_register_tile *t,
                                                                   const int vectors,
                                                                   const ot_tile_start start,
                                                                   const ot_real *scale) {
  ot_vector sum[OT_TILE_ROWS][OT_TILE_VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < OT_TILE_ROWS; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      const ot_vector *const c = (const ot_vector *)(t->c + r * t->c_stride) + v;
      sum[r][v] = (ot_vector){0};
      if (start == OT_TILE_ADD) sum[r][v] = *c;
      if (start == OT_TILE_SCALE) sum[r][v] = *c * ((const ot_vector *)scale)[v];
    }
  }
  const ot_real *a = t->a;
  const ot_real *b = t->b;
  for (int64_t k = 0; k < t->depth; k++) {
    ot_vector row[OT_TILE_VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) row[v] = ((const ot_vector *)b)[v];
#pragma GCC unroll 8
    for (int r = 0; r < OT_TILE_ROWS; r++) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) {
        sum[r][v] = ot_vector_fused(ot_vector_of(a[r * t->a_row]), row[v], sum[r][v]);
      }
    }
    a += t->a_depth;
    b += t->b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < OT_TILE_ROWS; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      ((ot_vector *)(t->c + r * t->c_stride))[v] = sum[r][v];
    }
  }
}
