// SPDX-License-Identifier: Apache-2.0
// Products of float32 by pieces of several shapes against the whole.
#include "support/blas_bits.h"

#include <string.h>

#include "kernels/matrix.h"

enum { ROWS = 96, COLUMNS = 192, DEPTH = 300 };

static float a[ROWS * DEPTH], b[DEPTH * COLUMNS], whole[ROWS * COLUMNS], piece[ROWS * COLUMNS];

static void multiply(int rows, int columns, float *c) {
  const ot_gemm product = {.rows = rows,
                           .columns = columns,
                           .depth = DEPTH,
                           .a = {a, DEPTH, false},
                           .b = {b, COLUMNS, false},
                           .c = c,
                           .c_stride = COLUMNS,
                           .alpha = 1};
  ot_matrix_multiply_f32(&product, 1);
}

static bool is_part_of_whole(int rows, int columns) {
  multiply(rows, columns, piece);
  for (int i = 0; i < rows; i++) {
    const size_t bytes = (size_t)columns * sizeof *piece;
    if (memcmp(piece + i * COLUMNS, whole + i * COLUMNS, bytes) != 0) return false;
  }
  return true;
}

static bool probe(void) {
  for (int i = 0; i < ROWS * DEPTH; i++) a[i] = (float)(i * 7919 % 1009) / 1009 - 0.5F;
  for (int i = 0; i < DEPTH * COLUMNS; i++) b[i] = (float)(i * 7907 % 1013) / 1013 - 0.5F;
  multiply(ROWS, COLUMNS, whole);
  bool fixed = true;
  for (int n = 1; n < ROWS; n += 5) {
    fixed = fixed && is_part_of_whole(n, COLUMNS) && is_part_of_whole(ROWS, n);
  }
  return fixed;
}

bool blas_bits_are_fixed(void) {
  static int known;  // 1: fixed, 2: not
  if (known == 0) known = probe() ? 1 : 2;
  return known == 1;
}
