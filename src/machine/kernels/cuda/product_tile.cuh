// SPDX-License-Identifier: Apache-2.0
// A tile of a matrix product for any combination of real types: 64 x 64 outputs of a block of 256
// threads, 4 x 4 a thread, in the order of the depth.
#pragma once

#include "kernels/cuda/kernel.cuh"

enum { OT_PRODUCT_TILE = 64, OT_PRODUCT_THREADS = 256 };

template <class R>
struct ot_operand {
  ot_any<R> at;
  int64_t row_step, column_step;  // elements between neighbours
  int64_t first;                  // element

  __device__ int64_t place(int64_t row, int64_t column) const {
    return first + row * row_step + column * column_step;
  }
  __device__ R get(int64_t row, int64_t column) const { return at[place(row, column)]; }
};

// y [rows, columns] = a [rows, depth] b [depth, columns] + (addend + bias [1, columns]); the last
// two may be absent, addend may be y.
template <class R>
struct ot_product {
  int64_t rows, columns, depth;
  ot_operand<R> a, b, y, addend, bias;
};

enum {
  OT_PRODUCT_EACH = 4,  // rows and columns of a thread
  OT_PRODUCT_SIDE = OT_PRODUCT_TILE / OT_PRODUCT_EACH,
  OT_PRODUCT_DEPTH = 16,
};

// Loads [tile, depth] of a, or of b^T if `second`, into `to` [depth][tile], zeros outside.
template <class R>
static __device__ __forceinline__ void ot_load_product_tile(const ot_operand<R> &x, bool second,
                                                            int64_t first, int64_t limit, int64_t k,
                                                            int64_t depth,
                                                            R (*to)[OT_PRODUCT_TILE]) {
  for (int i = threadIdx.x; i < OT_PRODUCT_TILE * OT_PRODUCT_DEPTH; i += OT_PRODUCT_THREADS) {
    const bool along_depth = second ? x.row_step == 1 : x.column_step == 1;
    const int d = along_depth ? i % OT_PRODUCT_DEPTH : i / OT_PRODUCT_TILE;
    const int t = along_depth ? i / OT_PRODUCT_DEPTH : i % OT_PRODUCT_TILE;
    const int64_t row = first + t, column = k + d;
    const bool inside = row < limit && column < depth;
    to[d][t] = !inside ? (R)0 : second ? x.get(column, row) : x.get(row, column);
  }
}

// The tile from `first_row` and `first_column` on, by a whole block.
template <class R>
static __device__ __forceinline__ void ot_multiply_tile(const ot_product<R> &p, int64_t first_row,
                                                        int64_t first_column) {
  constexpr int EACH = OT_PRODUCT_EACH, SIDE = OT_PRODUCT_SIDE, DEPTH = OT_PRODUCT_DEPTH;
  __shared__ R a[DEPTH][OT_PRODUCT_TILE], b[DEPTH][OT_PRODUCT_TILE];
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  R sum[EACH][EACH] = {};
  for (int64_t k = 0; k < p.depth; k += DEPTH) {
    ot_load_product_tile(p.a, false, first_row, p.rows, k, p.depth, a);
    ot_load_product_tile(p.b, true, first_column, p.columns, k, p.depth, b);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
#pragma unroll
      for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
          sum[i][j] = fma(a[d][y * EACH + i], b[d][x * EACH + j], sum[i][j]);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int64_t row = first_row + y * EACH + i, column = first_column + x * EACH + j;
      if (row >= p.rows || column >= p.columns) continue;
      R more = p.addend.at.data ? p.addend.get(row, column) : (R)0;
      if (p.bias.at.data) more += p.bias.get(0, column);
      p.y.at.set(p.y.place(row, column), sum[i][j] + more);
    }
  }
}
