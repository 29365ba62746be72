// SPDX-License-Identifier: Apache-2.0
// The GEMM of inference: c = a b^T or c += a b^T, in which the bits of a row of c do not depend on
// the number of rows, the other rows or the threads. A BLAS promises none of that, and packs b in
// every call, which for a few rows costs more than the product. A thread takes blocks of rows of b,
// reads them once from memory and multiplies them by all rows of a.
#include "base/status.h"
#include "kernels/dot_tile.h"
#include "kernels/matrix.h"
#include "ops/shares.h"

enum {
  DEPTH = 1024,           // of a partial sum: rows of a tile stay in the L1 cache
  BLOCK_BYTES = 1 << 17,  // of b, which stay in the L2 cache
};

// Rows [column, column + columns) of b, at depths [first, first + depth).
typedef struct block {
  int64_t column, columns, first, depth;
} block;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void put_tile(const ot_gemm *p, const block *b, int64_t row, int64_t column) {
  const int rows = (int)least(OT_DOT_ROWS, p->rows - row);
  const int columns = (int)least(OT_DOT_COLUMNS, b->column + b->columns - column);
  ot_real dots[OT_DOT_ROWS][OT_DOT_COLUMNS];
  ot_dot_tile tile = {.depth = b->depth};
  for (int r = 0; r < rows; r++) tile.a[r] = p->a.data + (row + r) * p->a.stride + b->first;
  for (int c = 0; c < OT_DOT_COLUMNS; c++) {
    tile.b[c] = p->b.data + (column + least(c, columns - 1)) * p->b.stride + b->first;
  }
  ot_dot_rows(&tile, rows, dots);
  const bool adds = b->first > 0 || p->beta == 1;
  for (int r = 0; r < rows; r++) {
    ot_real *const to = p->c + (row + r) * p->c_stride + column;
    for (int c = 0; c < columns; c++) to[c] = adds ? to[c] + dots[r][c] : dots[r][c];
  }
}

static void multiply_block(const ot_gemm *p, block b) {
  for (b.first = 0; b.first < p->depth; b.first += DEPTH) {
    b.depth = least(DEPTH, p->depth - b.first);
    for (int64_t row = 0; row < p->rows; row += OT_DOT_ROWS) {
      for (int64_t c = 0; c < b.columns; c += OT_DOT_COLUMNS) put_tile(p, &b, row, b.column + c);
    }
  }
}

void OT_KERNEL(ot_matrix_multiply_rows)(const ot_gemm *product, int threads) {
  OT_ASSERT(!product->a.transposed && product->b.transposed && product->depth > 0);
  OT_ASSERT(product->alpha == 1 && (product->beta == 0 || product->beta == 1));
  const int64_t deep = least(DEPTH, product->depth) * (int64_t)sizeof(ot_real);
  const int64_t width = BLOCK_BYTES / deep / OT_DOT_COLUMNS * OT_DOT_COLUMNS;
  const int64_t blocks = (product->columns + width - 1) / width;
  const double weights = (double)product->columns * (double)product->depth;
  const int sharing = ot_threads_for_rows(weights, (double)product->rows, threads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(sharing)
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t column = i * width;
    multiply_block(product, (block){column, least(width, product->columns - column), 0, 0});
  }
}
