// SPDX-License-Identifier: Apache-2.0
// GEMM by CBLAS, which only this file calls. C is partitioned into a grid of one block per thread;
// block bounds are multiples of the BLAS micro-kernel size. One thread computes a GEMM that is too
// small to share.
#include <cblas.h>
#include <pthread.h>

#include "base/status.h"
#include "kernels/matrix.h"
#include "ops/shares.h"

enum {
  ROW_UNIT = 16,
  COLUMN_UNIT = 64,
};

typedef struct grid {
  int rows, columns;
} grid;

// Only OpenBLAS has it. A BLAS with its own threads would start them once per Orthant thread.
extern int openblas_get_num_threads(void) __attribute__((weak));
extern void openblas_set_num_threads(int threads) __attribute__((weak));

static void make_blas_serial(void) {
  if (!openblas_get_num_threads || !openblas_set_num_threads) return;
  if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

// Runs once: setting the thread count frees OpenBLAS buffers that other ranks of the process may
// be using.
void OT_KERNEL(ot_matrix_prepare)(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_blas_serial);
}

// The partition of `product` over at most `threads` with the least reads: each block packs its rows
// of a and its columns of b.
static grid grid_for(const ot_gemm *product, int threads) {
  const double work = (double)product->rows * (double)product->columns * (double)product->depth;
  const int pieces = ot_threads_for_gemm(work, threads);
  grid best = {.rows = pieces, .columns = 1};
  double least = 0;
  for (int rows = pieces; rows >= 1; rows--) {
    const int columns = pieces / rows;
    const double used = (double)rows * columns;
    const double read = (double)product->rows / rows + (double)product->columns / columns;
    const double price = read * pieces / used;
    if (rows == pieces || price < least) {
      least = price;
      best = (grid){.rows = rows, .columns = columns};
    }
  }
  return best;
}

void OT_KERNEL(ot_matrix_multiply_serial)(const ot_gemm *product) {
  if (product->rows == 0 || product->columns == 0) return;
  const enum CBLAS_TRANSPOSE form_a = product->a.transposed ? CblasTrans : CblasNoTrans;
  const enum CBLAS_TRANSPOSE form_b = product->b.transposed ? CblasTrans : CblasNoTrans;
  _Generic((ot_real)0, float
           : cblas_sgemm, double
           : cblas_dgemm)(CblasRowMajor, form_a, form_b, (int)product->rows, (int)product->columns,
                          (int)product->depth, product->alpha, product->a.data,
                          (int)product->a.stride, product->b.data, (int)product->b.stride,
                          product->beta, product->c, (int)product->c_stride);
}

// First of the `n` items of block `i` of `count`, a multiple of `unit`.
static int64_t piece_begin(int64_t n, int count, int i, int unit) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * i / count * unit;
  return begin < n ? begin : n;
}

static const ot_real *factor_at(const ot_factor *factor, int64_t row, int64_t column) {
  return factor->transposed ? factor->data + column * factor->stride + row
                            : factor->data + row * factor->stride + column;
}

static void multiply_piece(const ot_gemm *product, grid g, int piece) {
  const int i = piece / g.columns;
  const int j = piece % g.columns;
  const int64_t row = piece_begin(product->rows, g.rows, i, ROW_UNIT);
  const int64_t column = piece_begin(product->columns, g.columns, j, COLUMN_UNIT);
  ot_gemm part = *product;
  part.rows = piece_begin(product->rows, g.rows, i + 1, ROW_UNIT) - row;
  part.columns = piece_begin(product->columns, g.columns, j + 1, COLUMN_UNIT) - column;
  part.a.data = factor_at(&product->a, row, 0);
  part.b.data = factor_at(&product->b, 0, column);
  part.c = product->c + row * product->c_stride + column;
  OT_KERNEL(ot_matrix_multiply_serial)(&part);
}

void OT_KERNEL(ot_matrix_multiply)(const ot_gemm *product, int threads) {
  if (product->independent_rows) {
    OT_KERNEL(ot_matrix_multiply_rows)(product, threads);
    return;
  }
  OT_KERNEL(ot_matrix_prepare)();
  const grid g = grid_for(product, threads);
  const int pieces = g.rows * g.columns;
  if (pieces == 1) {
    OT_KERNEL(ot_matrix_multiply_serial)(product);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(pieces)
  for (int piece = 0; piece < pieces; piece++) multiply_piece(product, g, piece);
}
