// SPDX-License-Identifier: Apache-2.0
// Tiles of bf16 matrices in shared memory, for products on tensor cores. A tile lies as [rows][D],
// where the 16-byte chunk c of row r stands at chunk c ^ ot_flip<D>(r), so that neither copies nor
// ldmatrix have bank conflicts.
#pragma once

#include "kernels/cuda/kernel.cuh"

// A row of D % 64 == 32 elements ends in the middle of the banks.
template <int D>
static __device__ __forceinline__ int ot_flip(int row) {
  static_assert(D % 32 == 0, "a row is whole halves of the banks");
  return D % 64 == 0 ? row & 7 : row >> 1 & 3;
}

template <int D>
static __device__ __forceinline__ ot_bf16 *ot_chunk(ot_bf16 *tile, int row, int chunk) {
  return tile + row * D + (chunk ^ ot_flip<D>(row)) * 8;
}

// Starts the copy of a tile whose rows are `step` elements apart, of which `rows` and `columns` are
// given, a multiple of 8; the others are zero. Its first element is given.
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void ot_copy_rows(const ot_bf16 *from, int64_t step, int rows,
                                                    ot_bf16 *tile, int columns = D) {
  // Threads copy panels of PANEL chunks of each row.
  constexpr int CHUNKS = D / 8, PANEL = CHUNKS & (CHUNKS - 1) ? CHUNKS & -CHUNKS : CHUNKS;
  constexpr int AT_ONCE = THREADS / PANEL;
  static_assert(AT_ONCE % 8 == 0 && ROWS % AT_ONCE == 0, "a thread's chunks are a column");
  const int first = threadIdx.x / PANEL;
#pragma unroll
  for (int c = threadIdx.x % PANEL; c < CHUNKS; c += PANEL) {
    const int given = c * 8 < columns ? rows : 0;
    const ot_bf16 *row = from + first * step + c * 8;
    ot_bf16 *const to = ot_chunk<D>(tile, first, c);
#pragma unroll
    for (int r = 0; r < ROWS; r += AT_ONCE) {
      ot_copy_async(to + r * D, first + r < given ? row : from, first + r < given);
      row += AT_ONCE * step;
    }
  }
}

// Where a lane reads its row of 16 x 16 parts of a tile with ldmatrix: 8-element chunk c, which is
// even, of rows 16 r on at `row` + 16 r D + 8 (c ^ flip).
struct ot_lane_reads {
  ot_bf16 *row;
  int flip;

  template <int D>
  __device__ const ot_bf16 *at(int rows, int chunk) const {
    return row + rows * D + (chunk ^ flip) * 8;
  }
};

// Matrices in the order of operand a, or of b[k][n] = tile[k][n] when they are transposed: rows
// first.
template <int D>
static __device__ __forceinline__ ot_lane_reads ot_rows_first(ot_bf16 *tile, int row) {
  const int lane = threadIdx.x % 32;
  ot_lane_reads reads = {tile + (row + lane % 16) * D, (lane / 16) ^ ot_flip<D>(lane % 16)};
  ot_forget(reads.flip);
  return reads;
}

// In the order of b[k][n] = tile[n][k]: columns first.
template <int D>
static __device__ __forceinline__ ot_lane_reads ot_columns_first(ot_bf16 *tile) {
  const int lane = threadIdx.x % 32;
  ot_lane_reads reads = {tile + (lane / 16 * 8 + lane % 8) * D, (lane / 8 % 2) ^ ot_flip<D>(lane % 8)};
  ot_forget(reads.flip);
  return reads;
}
