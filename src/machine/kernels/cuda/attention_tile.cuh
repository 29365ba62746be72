// SPDX-License-Identifier: Apache-2.0
// Shared by the attention kernels for all storage types: a block of 256 threads holds square tiles
// of scores and computes them in R. Thread (ty, tx), 16 by 16, has rows ty + 16 i and columns
// tx + 16 j of a tile of scores, and the columns VEC (tx + 16 c) on of the same rows of a tile of
// sums. So the 16 threads of half a warp share the rows that they read back from shared memory.
#pragma once

#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/philox.cuh"

extern "C" {
#include "base/rng.h"
#include "ops/attention.h"
#include "ops/zigzag.h"
}

enum { OT_TILE_THREADS = 256, OT_TILE_SIDE = 16 };

// The tiles for compute type R and head dims up to DMAX: 64, 32 or 16 queries and as many keys.
template <class R, int DMAX>
struct ot_tiling {
  static constexpr int M = 16 / (int)sizeof(R) / (DMAX > 128 ? 2 : 1);  // rows of a thread
  static constexpr int ROWS = OT_TILE_SIDE * M;
  static constexpr int VEC = 16 / (int)sizeof(R);
  static constexpr int STRIDE = DMAX + VEC;  // of rows in shared memory, without bank conflicts
  static constexpr int SCORES = ROWS + VEC;  // stride of scores
  static constexpr int C = DMAX / (OT_TILE_SIDE * VEC);  // vectors of columns of a thread
  static constexpr int HEAD = ROWS * STRIDE;             // elements of a tile of a head
};

// ---- the problem ----

// Rare transformations are calls: they would multiply the registers and code of every kernel.
template <class R>
static __device__ __attribute__((noinline)) R ot_capped(R score, R cap) {
  return cap * tanh(score / cap);
}

// Word j % 4 of the block of random words of query and key j.
static __device__ __attribute__((noinline)) uint32_t ot_dropout_word(uint64_t key, uint64_t sample,
                                                                     uint32_t position,
                                                                     uint32_t j) {
  uint32_t word[4];
  ot_philox(key, sample, position, j / 4, word);
  const uint32_t low = j & 1 ? word[1] : word[0], high = j & 1 ? word[3] : word[2];
  return j & 2 ? high : low;
}

// ot_positions of zigzag.h, on the device.
struct ot_places {
  int rows, half, first, second;

  __device__ int position(int i) const { return i < half ? first + i : second + i - half; }
  // Number of tokens before a position.
  __device__ int before(int position) const {
    const int one = position - first, two = position - second, rest = rows - half;
    return (one < 0 ? 0 : one < half ? one : half) + (two < 0 ? 0 : two < rest ? two : rest);
  }
};

static inline ot_places ot_places_of(const ot_positions &p) {
  return {(int)p.rows, (int)p.half, (int)p.start[0], (int)p.start[1]};
}

// Keys [low, high), those that a query sees.
struct ot_seen {
  int low, high;
};

template <class R>
struct ot_attention_shape {
  int T, H, G, D;
  ot_places queries, keys;  // of a block of a ring; both the whole sequence else
  int window;               // 0: none
  R scale, soft_cap;
  const int32_t *doc_start;    // [B T] or null
  const int64_t *sample_ids;   // [B], with dropout
  uint32_t dropout_threshold;  // 0: no dropout
  R dropout_factor;
  uint64_t dropout_key;
  int first_head;

  // The position of the first key that query i of sequence b, itself at `position`, sees.
  __device__ int first_position(int b, int i, int position) const {
    const int start = doc_start ? doc_start[(int64_t)b * T + i] : 0;
    const int oldest = window > 0 ? position - window + 1 : 0;
    return start > oldest ? start : oldest;
  }
  // In whole sequences: query i sees the keys from there to i.
  __device__ int first_key(int b, int i) const {
    return i < T ? first_position(b, i, i) : INT32_MAX;
  }
  // A query that sees no key of the block, or that does not exist, has none from INT32_MAX on.
  __device__ ot_seen seen(int b, int i) const {
    if (i >= T) return {INT32_MAX, 0};
    const int position = queries.position(i), high = keys.before(position + 1);
    const int low = keys.before(first_position(b, i, position));
    return low < high ? ot_seen{low, high} : ot_seen{INT32_MAX, 0};
  }
  __device__ R score(R dot) const {
    const R scaled = scale * dot;
    return soft_cap > 0 ? ot_capped(scaled, soft_cap) : scaled;
  }
  // The derivative of a score by the scaled product.
  __device__ R slope(R score) const {
    return soft_cap > 0 ? (soft_cap - score) * (soft_cap + score) / (soft_cap * soft_cap) : 1;
  }
  // The factor of a probability: 0 or 1 / (1 - dropout).
  __device__ R keep(int b, int h, int i, int j) const {
    if (dropout_threshold == 0) return 1;
    const uint32_t query = (uint32_t)queries.position(i), key = (uint32_t)keys.position(j);
    const uint32_t row = ((uint32_t)(first_head + h) << 24) + query;
    const uint32_t word = ot_dropout_word(dropout_key, (uint64_t)sample_ids[b], row, key);
    return word >= dropout_threshold ? dropout_factor : 0;
  }
};

// `batch`: doc_start and sample_ids.
template <class R>
static inline ot_attention_shape<R> ot_attention_shape_of(const ot_op_attributes *a,
                                                          const ot_tensor *batch) {
  ot_attention_shape<R> s = {};
  s.T = (int)a->sequence_length;
  s.H = (int)a->num_heads;
  s.G = (int)a->num_kv_heads;
  s.D = (int)a->head_dim;
  s.queries = s.keys = ot_places_of(ot_positions_whole(a->sequence_length));
  s.window = a->window < a->sequence_length ? (int)a->window : 0;
  s.scale = (R)a->scale;
  s.soft_cap = (R)a->soft_cap;
  s.doc_start = (const int32_t *)batch[0].data;
  s.sample_ids = (const int64_t *)batch[1].data;
  s.dropout_threshold = (uint32_t)(a->dropout * 4294967296.0);
  s.dropout_factor = (R)(1 / (1 - a->dropout));
  s.dropout_key = ot_rng_key(a->seed, a->rng_stream);
  s.first_head = (int)a->first_head;
  return s;
}

// The same for a block of a ring.
template <class R>
static inline ot_attention_shape<R> ot_attention_block_shape_of(const ot_op_attributes *a,
                                                                const ot_tensor *batch) {
  const int64_t rows = a->sequence_length;
  const int ranks = a->context_size > 1 ? a->context_size : 1;
  ot_attention_shape<R> s = ot_attention_shape_of<R>(a, batch);
  s.queries = ot_places_of(ot_positions_of(rows, ranks, a->context_index));
  s.keys = ot_places_of(ot_positions_of(rows, ranks, a->key_index));
  s.window = a->window < rows * ranks ? (int)a->window : 0;
  return s;
}

// ---- rows of a head ----

// A tensor of heads: token t of head `head` starts at element (t * heads + head) * D.
template <class R>
struct ot_heads {
  ot_any<R> tensor;
  int heads, D;
  bool vectors;  // 16-byte accesses fit

  __device__ int64_t at(int64_t token, int head) const { return (token * heads + head) * D; }
};

template <class R>
static inline ot_heads<R> ot_heads_of(const ot_tensor *tensor, int64_t heads, int64_t D) {
  const void *const all[] = {tensor->data};
  return {ot_any_of<R>(tensor), (int)heads, (int)D, ot_fits_vectors(tensor->type.dtype, D, all, 1)};
}

template <class T, int N, class R>
static __device__ __forceinline__ void ot_copy_row_part(const T *from, bool given, R *to) {
  R x[N] = {};
  if (given) ot_load(from, x);
#pragma unroll
  for (int first = 0; first < N; first += 16 / (int)sizeof(R)) {
    R piece[16 / sizeof(R)];
#pragma unroll
    for (int k = 0; k < 16 / (int)sizeof(R); k++) piece[k] = x[first + k];
    ot_store(to + first, piece);
  }
}

template <class T, int N, class R, int DMAX>
static __device__ __forceinline__ void ot_load_vectors(const T *from, int64_t step, int n, int D,
                                                       R *tile) {
  using t = ot_tiling<R, DMAX>;
  for (int i = threadIdx.x; i < t::ROWS * (DMAX / N); i += OT_TILE_THREADS) {
    const int r = i / (DMAX / N), d = i % (DMAX / N) * N;
    if (d < D) ot_copy_row_part<T, N>(from + r * step + d, r < n, tile + r * t::STRIDE + d);
  }
}

// Rows `token` .. token + n - 1 of a head to a tile, zero beyond n rows, and beyond D as far as
// whole vectors reach.
template <class R, int DMAX>
static __device__ __forceinline__ void ot_load_rows(const ot_heads<R> &from, int64_t token,
                                                    int head, int n, R *tile) {
  using t = ot_tiling<R, DMAX>;
  const int64_t first = from.at(token, head), step = (int64_t)from.heads * from.D;
  if (from.vectors && from.tensor.dtype == OT_BF16) {
    ot_load_vectors<ot_bf16, 8, R, DMAX>((const ot_bf16 *)from.tensor.data + first, step, n, from.D,
                                         tile);
  } else if (from.vectors) {
    ot_load_vectors<R, t::VEC, R, DMAX>((const R *)from.tensor.data + first, step, n, from.D, tile);
  } else {
    const int filled = (from.D + t::VEC - 1) / t::VEC * t::VEC;
    for (int i = threadIdx.x; i < t::ROWS * DMAX; i += OT_TILE_THREADS) {
      const int r = i / DMAX, d = i % DMAX;
      if (d >= filled) continue;
      tile[r * t::STRIDE + d] = r < n && d < from.D ? from.tensor[first + r * step + d] : 0;
    }
  }
}

// sums of the thread times `factor` to rows token .. token + n - 1 of a head.
template <class R, int DMAX, int M, int C, int VEC>
static __device__ __forceinline__ void ot_store_rows(const ot_heads<R> &to, int64_t token, int head,
                                                     int n, const R (&factor)[M],
                                                     const R (&sums)[M][C][VEC]) {
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
    const int row = ty + OT_TILE_SIDE * i;
    if (row >= n) continue;
    const int64_t first = to.at(token + row, head);
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int d = VEC * (tx + OT_TILE_SIDE * c);
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        if (d + k < to.D) to.tensor.set(first + d + k, factor[i] * sums[i][c][k]);
      }
    }
  }
}

// sums = factor * sums + weight * the same rows of `before`, and factor = 1.
template <class R, int DMAX, int M, int C, int VEC>
static __device__ __forceinline__ void ot_add_rows(const ot_heads<R> &before, int64_t token,
                                                   int head, int n, const R (&weight)[M],
                                                   R (&factor)[M], R (&sums)[M][C][VEC]) {
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
    const int row = ty + OT_TILE_SIDE * i;
    if (row >= n) continue;
    const int64_t first = before.at(token + row, head);
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int d = VEC * (tx + OT_TILE_SIDE * c);
#pragma unroll
      for (int k = 0; k < VEC; k++) {
        const R x = d + k < before.D ? before.tensor[first + d + k] : 0;
        sums[i][c][k] = factor[i] * sums[i][c][k] + weight[i] * x;
      }
    }
    factor[i] = 1;
  }
}

// ---- products ----

// products[i][j] = row i of the thread in `a` . its column's row j in `b`, both tiles of heads.
template <class R, int DMAX, int M>
static __device__ __forceinline__ void ot_row_products(const R *a, const R *b, int D,
                                                       R (&products)[M][M]) {
  using t = ot_tiling<R, DMAX>;
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
#pragma unroll
    for (int j = 0; j < M; j++) products[i][j] = 0;
  }
#pragma unroll 2
  for (int d = 0; d < D; d += t::VEC) {
    R x[M][t::VEC], y[M][t::VEC];
#pragma unroll
    for (int i = 0; i < M; i++) {
      ot_load(a + (ty + OT_TILE_SIDE * i) * t::STRIDE + d, x[i]);
      ot_load(b + (tx + OT_TILE_SIDE * i) * t::STRIDE + d, y[i]);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
#pragma unroll
      for (int j = 0; j < M; j++) {
#pragma unroll
        for (int k = 0; k < t::VEC; k++) {
          products[i][j] = fma(x[i][k], y[j][k], products[i][j]);
        }
      }
    }
  }
}

// sums[i] += sum over r of weights[row i of the thread][r] * rows[r], the thread's columns.
template <class R, int DMAX, int M, int C, int VEC>
static __device__ __forceinline__ void ot_add_products(const R *weights, const R *rows, int D,
                                                       R (&sums)[M][C][VEC]) {
  using t = ot_tiling<R, DMAX>;
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll 1
  for (int r = 0; r < t::ROWS; r += VEC) {
    R w[M][VEC];
#pragma unroll
    for (int i = 0; i < M; i++) ot_load(weights + (ty + OT_TILE_SIDE * i) * t::SCORES + r, w[i]);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        if (VEC * OT_TILE_SIDE * c >= D) continue;
        R x[VEC];
        ot_load(rows + (r + k) * t::STRIDE + VEC * (tx + OT_TILE_SIDE * c), x);
#pragma unroll
        for (int i = 0; i < M; i++) {
#pragma unroll
          for (int v = 0; v < VEC; v++) sums[i][c][v] = fma(w[i][k], x[v], sums[i][c][v]);
        }
      }
    }
  }
}

// A square of the thread's values to shared memory, from which its half warp reads whole rows.
template <class R, int DMAX, int M>
static __device__ __forceinline__ void ot_share_scores(const R (&values)[M][M], R *scores) {
  using t = ot_tiling<R, DMAX>;
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
#pragma unroll
    for (int j = 0; j < M; j++) {
      scores[(ty + OT_TILE_SIDE * i) * t::SCORES + tx + OT_TILE_SIDE * j] = values[i][j];
    }
  }
}

// The value over the 16 threads of half a warp.
template <class R>
static __device__ __forceinline__ R ot_half_warp_max(R x) {
#pragma unroll
  for (int by = OT_TILE_SIDE / 2; by > 0; by /= 2) {
    const R other = __shfl_xor_sync(0xffffffffu, x, by);
    x = other > x ? other : x;
  }
  return x;
}

template <class R>
static __device__ __forceinline__ R ot_half_warp_sum(R x) {
#pragma unroll
  for (int by = OT_TILE_SIDE / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}

// The keys that some query of the tile from `first` on sees, from a multiple of a tile on. All
// threads of the block call it.
template <class R, int DMAX>
static __device__ ot_seen ot_seen_by_tile(const ot_attention_shape<R> &shape, int b, int first) {
  using t = ot_tiling<R, DMAX>;
  __shared__ ot_seen seen[t::ROWS];
  if (threadIdx.x < t::ROWS) seen[threadIdx.x] = shape.seen(b, first + threadIdx.x);
  __syncthreads();
  ot_seen all = {INT32_MAX, 0};
  for (int i = 0; i < t::ROWS; i++) {
    all.low = seen[i].low < all.low ? seen[i].low : all.low;
    all.high = seen[i].high > all.high ? seen[i].high : all.high;
  }
  all.low = all.low / t::ROWS * t::ROWS;
  return all;
}

// ---- launches ----

// Calls launch(ot_width<DMAX>{}) for the least DMAX that holds head_dim.
template <class Launch>
static inline void ot_for_head_dim(int64_t head_dim, Launch launch) {
  if (head_dim <= 64) {
    launch(ot_width<64>{});
  } else if (head_dim <= 128) {
    launch(ot_width<128>{});
  } else {
    launch(ot_width<256>{});
  }
}
