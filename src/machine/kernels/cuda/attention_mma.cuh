// SPDX-License-Identifier: Apache-2.0
// Shared by the attention kernels on tensor cores: bf16 storage, float32 sums, head dims 64, 96,
// 128, 192 with values of at most 128, and 256, without soft cap and dropout; RING: a block of a
// ring, else whole sequences. Tiles of rows of a head are those of mma_tile.cuh. A warp has MT
// times 16 rows of the products; lane l has rows l / 4 and l / 4 + 8 and columns 2 (l % 4),
// 2 (l % 4) + 1 of each 16 x 8 part.
#pragma once

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/mma_tile.cuh"

static constexpr float OT_LOG2_E = 1.4426950408889634f;

// Columns of values of head dim D that are not zero.
template <int D>
static constexpr int ot_value_dim = D == 192 ? 128 : D;

// ---- who sees what ----

// The end of the keys that precede query i.
template <bool RING>
static __device__ __forceinline__ int ot_end_key(const ot_attention_shape<float> &shape, int i) {
  return RING ? shape.keys.before(shape.queries.position(i) + 1) : i + 1;
}

// The range of keys that query i of sequence b sees; from INT32_MAX on if it sees none.
template <bool RING>
static __device__ __forceinline__ ot_seen ot_seen_of(const ot_attention_shape<float> &shape, int b,
                                                     int i) {
  return RING ? shape.seen(b, i) : ot_seen{shape.first_key(b, i), i + 1};
}

// Writes the ranges that the ROWS queries from `first` on see to `rows` [ROWS] in shared memory;
// returns their least and largest first key.
struct ot_first_keys {
  int least, largest;
};

template <bool RING, int ROWS, int THREADS>
static __device__ __forceinline__ ot_first_keys
ot_first_keys_of(const ot_attention_shape<float> &shape, int b, int first, ot_seen *rows) {
  __shared__ int parts[THREADS / 32];
  ot_first_keys keys = {INT32_MAX, 0};
  for (int i = threadIdx.x; i < ROWS; i += THREADS) {
    rows[i] = ot_seen_of<RING>(shape, b, first + i);
    keys.least = rows[i].low < keys.least ? rows[i].low : keys.least;
    keys.largest = rows[i].low > keys.largest ? rows[i].low : keys.largest;
  }
  keys.largest = ot_block_max<THREADS>(keys.largest, parts);
  keys.least = -ot_block_max<THREADS>(-keys.least, parts);
  return keys;
}

// ---- products ----

// products = rows of `a` from `row` on times all N rows of `b`, transposed.
template <int D, int MT, int NT>
static __device__ __forceinline__ void ot_mma_rows(ot_bf16 *a, int row, ot_bf16 *b,
                                                   float (&products)[MT][NT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
      for (int k = 0; k < 4; k++) products[m][n][k] = 0;
    }
  }
  const ot_lane_reads from_a = ot_rows_first<D>(a, row), from_b = ot_columns_first<D>(b);
#pragma unroll 2  // more would load more at once than there are registers
  for (int chunk = 0; chunk < D / 8; chunk += 2) {
    uint32_t x[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) ot_load_matrices(x[m], from_a.at<D>(16 * m, chunk));
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      uint32_t y[4];
      ot_load_matrices(y, from_b.at<D>(n * 8, chunk));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        ot_mma_bf16(products[m][n], x[m], y[0], y[1]);
        ot_mma_bf16(products[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// sums += weights [16 MT, 8 NT], rounded to bf16, times the rows of `rows` [8 NT, D].
template <int D, int MT, int NT>
static __device__ __forceinline__ void ot_mma_add(const float (&weights)[MT][NT][4], ot_bf16 *rows,
                                                  float (&sums)[MT][D / 8][4]) {
  const ot_lane_reads from = ot_rows_first<D>(rows, 0);
#pragma unroll
  for (int n = 0; n < NT; n += 2) {
    uint32_t x[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) {
      x[m][0] = ot_pack_bf16(weights[m][n][0], weights[m][n][1]);
      x[m][1] = ot_pack_bf16(weights[m][n][2], weights[m][n][3]);
      x[m][2] = ot_pack_bf16(weights[m][n + 1][0], weights[m][n + 1][1]);
      x[m][3] = ot_pack_bf16(weights[m][n + 1][2], weights[m][n + 1][3]);
    }
#pragma unroll
    for (int chunk = 0; chunk < D / 8; chunk += 2) {
      uint32_t y[4];
      ot_load_transposed(y, from.at<D>(n * 8, chunk));
#pragma unroll
      for (int m = 0; m < MT; m++) {
        ot_mma_bf16(sums[m][chunk], x[m], y[0], y[1]);
        ot_mma_bf16(sums[m][chunk + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// ---- results ----

// factor * sums of the warp to its rows from `row` on of a tile that no other warp reads, and from
// there to rows `to`, `step` elements apart, of which the block has n.
template <int D, int MT>
static __device__ __forceinline__ void ot_store_sums(const float (&sums)[MT][D / 8][4],
                                                     const float (&factor)[MT][2], ot_bf16 *tile,
                                                     int row, ot_bf16 *to, int64_t step, int n) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float f = factor[m][half];
        ot_bf16 *const at = ot_chunk<D>(tile, row + 16 * m + 8 * half + lane / 4, c);
        *(uint32_t *)(at + lane % 4 * 2) =
            ot_pack_bf16(f * sums[m][c][2 * half], f * sums[m][c][2 * half + 1]);
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * MT * (D / 8); i += 32) {
    const int r = row + i / (D / 8), c = i % (D / 8);
    if (r < n) *(uint4 *)(to + r * step + c * 8) = *(const uint4 *)ot_chunk<D>(tile, r, c);
  }
}

// Zeros to the columns [V, D) of the warp's rows from `row` on; the rest as above.
template <int D, int V, int MT, class T>
static __device__ __forceinline__ void ot_store_zeros(int row, T *to, int64_t step, int n) {
  constexpr int VEC = 16 / (int)sizeof(T);
  for (int r = row; r < row + 16 * MT && r < n; r++) {
    for (int d = V + (int)threadIdx.x % 32 * VEC; d < D; d += 32 * VEC) {
      *(uint4 *)(to + r * step + d) = uint4{0, 0, 0, 0};
    }
  }
}

// factor * sums + weight * before, before = 0 if null, to rows `to` of float32; the rest as above.
template <int V, int MT>
static __device__ __forceinline__ void ot_store_wide(const float (&sums)[MT][V / 8][4],
                                                     const float (&factor)[MT][2],
                                                     const float (&weight)[MT][2],
                                                     const float *before, int row, float *to,
                                                     int64_t step, int n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = row + 16 * m + 8 * half + lane / 4;
      if (r >= n) continue;
      const float f = factor[m][half], w = weight[m][half];
#pragma unroll
      for (int c = 0; c < V / 8; c++) {
        const int64_t at = r * step + c * 8 + lane % 4 * 2;
        float2 x = {f * sums[m][c][2 * half], f * sums[m][c][2 * half + 1]};
        if (before) {
          const float2 y = *(const float2 *)(before + at);
          x = {fmaf(w, y.x, x.x), fmaf(w, y.y, x.y)};
        }
        *(float2 *)(to + at) = x;
      }
    }
  }
}

// The sum over the four lanes that share a row.
static __device__ __forceinline__ float ot_quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float ot_quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// ---- calls ----

// True if the kernels on tensor cores do this call. Of `tensors`, all its activations, those of a
// bit of `wide` are stored in float32, the others in bf16; absent ones fit.
static inline bool ot_attention_fits_mma(const ot_op_attributes *a, const ot_tensor *const *tensors,
                                         int count, unsigned wide) {
  const int64_t D = a->head_dim;
  const bool latent = D == 192 && a->value_dim > 0 && a->value_dim <= ot_value_dim<192>;
  if (D != 64 && D != 96 && D != 128 && D != 256 && !latent) return false;
  if (a->compute != OT_F32 || a->soft_cap > 0 || a->dropout > 0 || a->scale <= 0) return false;
  for (int i = 0; i < count; i++) {
    const void *const data = tensors[i]->data;
    const ot_dtype dtype = wide >> i & 1 ? OT_F32 : OT_BF16;
    if (!data) continue;
    if (tensors[i]->type.dtype != dtype || !ot_fits_vectors(dtype, D, &data, 1)) return false;
  }
  return true;
}

// Calls launch(ot_width<D>{}).
template <class Launch>
static inline void ot_for_mma_head_dim(int64_t head_dim, Launch launch) {
  switch (head_dim) {
    case 64:
      return launch(ot_width<64>{});
    case 96:
      return launch(ot_width<96>{});
    case 128:
      return launch(ot_width<128>{});
    case 192:
      return launch(ot_width<192>{});
    default:
      return launch(ot_width<256>{});
  }
}
