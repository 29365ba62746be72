// SPDX-License-Identifier: Apache-2.0
// Shared by the attention kernels for Hopper. A tile has ROWS rows of a head; it lies in panels of
// 64 columns or, where those do not divide the head, of 32, as the tensor memory accelerator copies
// them. One warpgroup of a block copies, the others compute; a warp of those has 16 rows of the
// products.
#pragma once

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

enum { OT_WARPGROUP = 128 };

// The columns, the bytes of a row and the bytes of a panel. D: columns of the head.
template <int D>
static constexpr int ot_panel_columns = D % 64 == 0 ? 64 : 32;
template <int D>
static constexpr int ot_panel_row = 2 * ot_panel_columns<D>;
template <int D, int ROWS>
static constexpr int ot_panel = ROWS *ot_panel_row<D>;

template <int D, int ROWS>
static constexpr int ot_tile_bytes = ROWS *D * 2;

// Starts the copy of a tile of ROWS rows from (column, row, sequence) on, BOX rows at a time; rows
// outside of the sequence are zero. By one thread.
template <int D, int ROWS, int BOX = ROWS>
static __device__ __forceinline__ void ot_copy_head(unsigned char *tile, const ot_tensor_map &map,
                                                    int column, int row, int sequence,
                                                    uint64_t *barrier) {
#pragma unroll
  for (int panel = 0; panel < D / ot_panel_columns<D>; panel++) {
#pragma unroll
    for (int r = 0; r < ROWS; r += BOX) {
      ot_copy_tile(tile + panel * ot_panel<D, ROWS> + r * ot_panel_row<D>, map,
                   column + panel * ot_panel_columns<D>, row + r, sequence, barrier);
    }
  }
}

// products = 64 rows of tile `a` from its row `row` on times the first 8 NT rows of tile `b`,
// transposed.
template <int D, int A_ROWS, int B_ROWS, int NT>
static __device__ __forceinline__ void ot_multiply_rows(const unsigned char *a, int row,
                                                        const unsigned char *b,
                                                        float (&products)[NT][4]) {
  constexpr int COLUMNS = ot_panel_columns<D>;
#pragma unroll
  for (int d = 0; d < D; d += 16) {
    const int panel = d / COLUMNS, at = d % COLUMNS * 2, from = row * ot_panel_row<D> + at;
    ot_multiply(products, ot_operand_by_depth<COLUMNS>(a + panel * ot_panel<D, A_ROWS> + from),
                ot_operand_by_depth<COLUMNS>(b + panel * ot_panel<D, B_ROWS> + at), d > 0);
  }
}

// sums += weights [64, ROWS] times the rows of a tile, whose columns are those of sums.
template <int ROWS, int NT>
static __device__ __forceinline__ void ot_multiply_weights(const uint32_t (&weights)[ROWS / 16][4],
                                                           const unsigned char *tile,
                                                           float (&sums)[NT][4]) {
  constexpr int D = 8 * NT, COLUMNS = ot_panel_columns<D>, PANEL = ot_panel<D, ROWS>;
#pragma unroll
  for (int k = 0; k < ROWS / 16; k++) {
    ot_multiply_add(sums, weights[k],
                    ot_operand_by_column<COLUMNS>(tile + k * 16 * ot_panel_row<D>, PANEL));
  }
}

// Weights as operand a.
template <int NT>
static __device__ __forceinline__ void ot_pack_weights(const float (&from)[NT][4],
                                                       uint32_t (&to)[NT / 2][4]) {
#pragma unroll
  for (int k = 0; k < NT / 2; k++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *const pair = &from[2 * k + i / 2][i % 2 * 2];
      to[k][i] = ot_pack_bf16(pair[0], pair[1]);
    }
  }
}

// One arrival for a warp whose lanes have all come here: a lane that still waits for an earlier
// phase of another barrier could else miss it.
static __device__ __forceinline__ void ot_arrive_by_warp(uint64_t *barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ot_barrier_arrive(barrier);
}

// factor * sums of the warp to its rows from `row` on of a tile of ROWS rows that no other warp
// uses, and from there to rows `to`, `step` elements apart, of which the tile has n.
template <int D, int ROWS>
static __device__ __forceinline__ void ot_store_panels(const float (&sums)[D / 8][4],
                                                       const float (&factor)[2],
                                                       unsigned char *tile, int row, ot_bf16 *to,
                                                       int64_t step, int n) {
  constexpr int CHUNKS = D / 8, PANEL_CHUNKS = ot_panel_columns<D> / 8;
  const int lane = threadIdx.x % 32;
  const auto chunk = [=](int r, int c) {
    ot_bf16 *const panel = (ot_bf16 *)(tile + c / PANEL_CHUNKS * ot_panel<D, ROWS>);
    return ot_chunk<ot_panel_columns<D>>(panel, r, c % PANEL_CHUNKS);
  };
  __syncwarp();
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float f = factor[half];
      *(uint32_t *)(chunk(row + 8 * half + lane / 4, c) + lane % 4 * 2) =
          ot_pack_bf16(f * sums[c][2 * half], f * sums[c][2 * half + 1]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * CHUNKS; i += 32) {
    const int r = row + i / CHUNKS, c = i % CHUNKS;
    if (r < n) *(uint4 *)(to + r * step + c * 8) = *(const uint4 *)chunk(r, c);
  }
}

// Where rows of a result begin, `step` elements apart, and how many there are: bf16, or float32 of
// a ring, which adds `before` if that is not null.
struct ot_result {
  void *data;
  const float *before;
  int64_t first, step;
  int rows;
};

// factor * sums of the warp, COLUMNS of D, + weight * before to its rows from `row` on of a result,
// and zeros to the other columns; by way of a tile of ROWS rows, as above.
template <int D, int ROWS, bool RING, int NT>
static __device__ __forceinline__ void ot_store_result(const float (&sums)[1][NT][4],
                                                       const float (&factor)[1][2],
                                                       const float (&weight)[1][2],
                                                       unsigned char *tile, int row,
                                                       const ot_result &to) {
  constexpr int COLUMNS = 8 * NT;
  if constexpr (RING) {
    float *const rows = (float *)to.data + to.first;
    const float *const before = to.before ? to.before + to.first : nullptr;
    ot_store_wide<COLUMNS>(sums, factor, weight, before, row, rows, to.step, to.rows);
    ot_store_zeros<D, COLUMNS, 1>(row, rows, to.step, to.rows);
  } else {
    ot_bf16 *const rows = (ot_bf16 *)to.data + to.first;
    ot_store_panels<COLUMNS, ROWS>(sums[0], factor[0], tile, row, rows, to.step, to.rows);
    ot_store_zeros<D, COLUMNS, 1>(row, rows, to.step, to.rows);
  }
}

// True if a block of Hopper has room for `DYNAMIC` bytes of tiles, aligned, after `DECLARED` ones.
template <size_t DYNAMIC, size_t DECLARED>
static constexpr bool ot_fits_hopper = (DECLARED + 1023) / 1024 * 1024 + DYNAMIC <= 227 * 1024;

// Rows of heads in memory, B sequences of T tokens: [B T, columns], `step` elements apart.
struct ot_head_rows {
  const void *data;
  int64_t columns, step;
};

// The map of tiles of `rows` rows of them.
template <int D>
static inline bool ot_map_heads(const ot_kernel_call *call, int64_t tokens, int64_t T,
                                const ot_head_rows &heads, int rows, ot_tensor_map *map) {
  const ot_tiled_rows tiled = {heads.data, tokens / T,         T, heads.columns, heads.step,
                               rows,       ot_panel_columns<D>};
  return ot_tensor_map_of_rows(ot_cuda_context_of(call)->encode, &tiled, map);
}
