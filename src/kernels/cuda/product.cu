// SPDX-License-Identifier: Apache-2.0
// Matrix products of any combination of real types, for what cuBLASLt does not have:
// tiles of 64 x 64 outputs, 4 x 4 a thread, in the order of the depth.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/matmul.h"
}

namespace {

enum { TILE = 64, EACH = 4, SIDE = TILE / EACH, DEPTH = 16 };

template <class R>
struct operand {
  ot_any<R> at;
  int64_t row_step, column_step;  // elements between neighbours

  __device__ R get(int64_t row, int64_t column) const {
    return at[row * row_step + column * column_step];
  }
};

template <class R>
struct product_task {
  int64_t rows, columns, depth;
  operand<R> a, b, y, addend, bias;
};

// Loads [TILE, DEPTH] of a (by = 0) or of b^T into `to` [DEPTH][TILE], zeros outside.
template <class R>
__device__ __forceinline__ void load_tile(const operand<R> &x, bool second, int64_t first,
                                          int64_t limit, int64_t k, int64_t depth,
                                          R (*to)[TILE]) {
  for (int i = threadIdx.x; i < TILE * DEPTH; i += SIDE * SIDE) {
    const bool along_depth = second ? x.row_step == 1 : x.column_step == 1;
    const int d = along_depth ? i % DEPTH : i / TILE;
    const int t = along_depth ? i / DEPTH : i % TILE;
    const int64_t row = first + t, column = k + d;
    const bool inside = row < limit && column < depth;
    to[d][t] = !inside ? (R)0 : second ? x.get(column, row) : x.get(row, column);
  }
}

template <class R>
__global__ void __launch_bounds__(SIDE *SIDE) product_kernel(product_task<R> p) {
  __shared__ R a[DEPTH][TILE], b[DEPTH][TILE];
  const int64_t first_row = (int64_t)blockIdx.y * TILE, first_column = (int64_t)blockIdx.x * TILE;
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  R sum[EACH][EACH] = {};
  for (int64_t k = 0; k < p.depth; k += DEPTH) {
    load_tile(p.a, false, first_row, p.rows, k, p.depth, a);
    load_tile(p.b, true, first_column, p.columns, k, p.depth, b);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
#pragma unroll
      for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) sum[i][j] += a[d][y * EACH + i] * b[d][x * EACH + j];
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
      p.y.at.set(row * p.y.row_step + column, sum[i][j] + more);
    }
  }
}

template <class R>
operand<R> operand_of(const ot_cuda_matrix &x) {
  const ot_any<R> at = {(void *)x.data, x.dtype};
  return {at, x.transposed ? 1 : x.stride, x.transposed ? x.stride : 1};
}

template <class R>
void multiply(void *stream, const ot_cuda_product *p) {
  const product_task<R> task = {p->rows,
                                p->columns,
                                p->depth,
                                operand_of<R>(p->a),
                                operand_of<R>(p->b),
                                operand_of<R>(p->y),
                                operand_of<R>(p->addend),
                                operand_of<R>(p->bias)};
  const dim3 grid(ot_blocks(p->columns, TILE), ot_blocks(p->rows, TILE));
  OT_LAUNCH(product_kernel<R>, grid, SIDE * SIDE, 0, stream, task);
}

}  // namespace

extern "C" void ot_cuda_multiply_generic(void *stream, const ot_cuda_product *product) {
  if (product->compute == OT_F64) {
    multiply<double>(stream, product);
  } else {
    multiply<float>(stream, product);
  }
}
