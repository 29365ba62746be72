// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM of experts. Offsets stay on the device: the grid has as many tiles of rows as any
// offsets can need, and each block looks up its own. bf16 operands are multiplied on tensor cores,
// other types by tiles of product_tile.cuh. The sum of an output is in the order of the depth.
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/product_tile.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/route.h"
}

namespace {

// ---- rows by expert ----

// Group e < E has rows [offsets[e], offsets[e + 1]), group E the rest of the N rows.
struct groups {
  const int32_t *offsets;
  int E, N;
};

// Rows [first, end) of one group.
struct row_tile {
  int group, first, end;
};

// Tile `index` of all tiles of up to ROWS rows, group by group; without rows if there are fewer.
template <int ROWS>
__device__ row_tile row_tile_of(const groups &g, int index) {
  constexpr unsigned ALL = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int e = 0; e <= g.E; e += 32) {
    const int begin = e + lane <= g.E ? g.offsets[e + lane] : g.N;
    const int end = e + lane < g.E ? g.offsets[e + lane + 1] : g.N;
    const int tiles = (end - begin + ROWS - 1) / ROWS;
    int after = tiles;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int other = __shfl_up_sync(ALL, after, by);
      if (lane >= by) after += other;
    }
    after += before;
    const unsigned found = __ballot_sync(ALL, after > index);
    if (found) {
      const int at = __ffs((int)found) - 1;
      const int first = __shfl_sync(ALL, begin + (index - after + tiles) * ROWS, at);
      const int last = __shfl_sync(ALL, end, at);
      return {e + at, first, first + ROWS < last ? first + ROWS : last};
    }
    before = __shfl_sync(ALL, after, 31);
  }
  return {g.E + 1, g.N, g.N};
}

// No offsets need more tiles.
unsigned most_tiles(const groups &g, int rows) { return (unsigned)(g.N / rows + g.E + 1); }

groups groups_of(const ot_kernel_call *call) {
  return {(const int32_t *)call->in[2].data, (int)ot_route_local_experts(call->attributes),
          (int)call->in[0].type.dim[0]};
}

// y = x w + bias. The matrix of an expert is stored as [columns, depth], or if `plain` as [depth,
// columns].
template <class R>
struct rows_task {
  groups g;
  ot_any<R> x, w, y, bias;
  int depth, columns;
  bool plain;
};

// dw [O, C] of each expert (+)= dy^T x.
template <class R>
struct weights_task {
  groups g;
  ot_any<R> dy, x, dw;
  int O, C;
  bool accumulate;
};

// ---- tensor cores ----

// A block has SIDE x SIDE outputs and copies DEPTH of the depth at a time, STAGES - 1 ahead; a warp
// has half of its rows and columns.
enum { SIDE = 128, DEPTH = 64, STAGES = 3, THREADS = 128, STAGE = 2 * SIDE * DEPTH };

// The sums of one 64 x 64 part: lane l has rows 16 m + l / 4 (+ 8) and columns
// 8 n + 2 (l % 4) (+ 1).
typedef float part_sums[4][8][4];

// An operand of a tile: `count` rows of a, or columns of b. Stored `plain` as [depth, count], else
// as [count, depth]; stored rows are `step` elements apart.
struct operand {
  const ot_bf16 *first;
  int64_t step;
  int count;
};

template <bool PLAIN>
__device__ __forceinline__ void copy_operand(const operand &x, int k, int depth, ot_bf16 *to) {
  if constexpr (PLAIN) {
    ot_copy_rows<SIDE, DEPTH, THREADS>(x.first + k * x.step, x.step, depth - k, to, x.count);
  } else {
    ot_copy_rows<DEPTH, SIDE, THREADS>(x.first + k, x.step, x.count, to, depth - k);
  }
}

// The part of an operand that a warp reads, from row or column `first` on.
template <bool PLAIN, bool IS_A>
struct operand_reads {
  ot_lane_reads reads;

  __device__ operand_reads(ot_bf16 *tile, int first) {
    constexpr int D = PLAIN ? SIDE : DEPTH;
    ot_bf16 *const from = PLAIN ? tile + first : tile + first * DEPTH;
    if constexpr (PLAIN != IS_A) {
      reads = ot_rows_first<D>(from, 0);
    } else {
      reads = ot_columns_first<D>(from);
    }
  }
  // The 16 x 16 part at depth k and at row or column `at`.
  __device__ __forceinline__ void load(int k, int at, uint32_t (&to)[4]) const {
    if constexpr (PLAIN) {
      ot_load_transposed(to, reads.template at<SIDE>(k, at / 8));
    } else {
      ot_load_matrices(to, reads.template at<DEPTH>(at, k / 8));
    }
  }
};

template <bool A_PLAIN, bool B_PLAIN>
__device__ __forceinline__ void multiply_stage(ot_bf16 *stage, part_sums &sums) {
  const int warp = threadIdx.x / 32;
  const operand_reads<A_PLAIN, true> a(stage, warp / 2 * (SIDE / 2));
  const operand_reads<B_PLAIN, false> b(stage + SIDE * DEPTH, warp % 2 * (SIDE / 2));
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    uint32_t x[4][4];
#pragma unroll
    for (int m = 0; m < 4; m++) a.load(k, 16 * m, x[m]);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t y[4];
      b.load(k, 8 * n, y);
#pragma unroll
      for (int m = 0; m < 4; m++) {
        ot_mma_bf16(sums[m][n], x[m], y[0], y[1]);
        ot_mma_bf16(sums[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// sums += a b over the depth, by a whole block.
template <bool A_PLAIN, bool B_PLAIN>
__device__ __forceinline__ void multiply(const operand &a, const operand &b, int depth,
                                         ot_bf16 *stages, part_sums &sums) {
  const auto copy = [&](int k) {
    if (k < depth) {
      ot_bf16 *const to = stages + k / DEPTH % STAGES * STAGE;
      copy_operand<A_PLAIN>(a, k, depth, to);
      copy_operand<B_PLAIN>(b, k, depth, to + SIDE * DEPTH);
    }
    ot_copy_commit();
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) copy(s * DEPTH);
  for (int k = 0; k < depth; k += DEPTH) {
    ot_copy_wait<STAGES - 2>();
    __syncthreads();
    copy(k + (STAGES - 1) * DEPTH);
    multiply_stage<A_PLAIN, B_PLAIN>(stages + k / DEPTH % STAGES * STAGE, sums);
  }
  ot_copy_wait<0>();
}

// Two neighbours of y, which is stored in bf16 or float32; the first has an even place.
__device__ __forceinline__ void put_pair(const ot_any<float> &y, int64_t place, float (&pair)[2],
                                         bool accumulate) {
  if (y.dtype == OT_BF16) {
    uint32_t *const to = (uint32_t *)((ot_bf16 *)y.data + place);
    const uint32_t old = accumulate ? *to : 0;
    const float low = __uint_as_float(old << 16), high = __uint_as_float(old & 0xffff0000u);
    *to = ot_pack_bf16(pair[0] + low, pair[1] + high);
  } else {
    ot_vector<float, 2> *const to = (ot_vector<float, 2> *)((float *)y.data + place);
    ot_vector<float, 2> sum = {{0, 0}};
    if (accumulate) sum = *to;
#pragma unroll
    for (int k = 0; k < 2; k++) sum.at[k] += pair[k];
    *to = sum;
  }
}

// Writes rows x columns of a tile whose first element is `first`; rows are `step` elements apart.
struct written_tile {
  ot_any<float> y;
  int64_t first;
  int step, rows, columns;
  bool accumulate;
  ot_any<float> bias;  // data null: none
  int64_t first_bias;

  __device__ __forceinline__ void write(const part_sums &sums) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / 2 * (SIDE / 2) + lane / 4;
    const int column = warp % 2 * (SIDE / 2) + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++) {
      const int c = column + 8 * n;
      if (c >= columns) continue;
      float more[2] = {0, 0};
      if (bias.data) {
        more[0] = bias[first_bias + c];
        more[1] = bias[first_bias + c + 1];
      }
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const int r = row + 8 * i;
        if (r >= rows) continue;
        float pair[2] = {sums[i / 2][n][i % 2 * 2] + more[0],
                         sums[i / 2][n][i % 2 * 2 + 1] + more[1]};
        put_pair(y, first + (int64_t)r * step + c, pair, accumulate);
      }
    }
  }
};

__device__ __forceinline__ int at_most_side(int n) { return n < SIDE ? n : SIDE; }

// Blocks (tile of columns, tile of rows): those that run together share rows.
template <bool PLAIN>
__global__ void __launch_bounds__(THREADS, 2) rows_mma_kernel(rows_task<float> t) {
  OT_DYNAMIC_SHARED(ot_bf16, stages);
  const row_tile tile = row_tile_of<SIDE>(t.g, (int)blockIdx.y);
  if (tile.first >= tile.end) return;
  const bool used = tile.group < t.g.E;
  const int column = (int)blockIdx.x * SIDE, rows = tile.end - tile.first;
  const int columns = at_most_side(t.columns - column);
  const ot_bf16 *const w = (const ot_bf16 *)t.w.data + (int64_t)tile.group * t.depth * t.columns;
  const operand a = {(const ot_bf16 *)t.x.data + (int64_t)tile.first * t.depth, t.depth, rows};
  const operand b = {w + (PLAIN ? column : (int64_t)column * t.depth), PLAIN ? t.columns : t.depth,
                     columns};
  part_sums sums = {};
  multiply<false, PLAIN>(a, b, used ? t.depth : 0, stages, sums);
  const ot_any<float> bias = {used ? t.bias.data : nullptr, t.bias.dtype};
  const written_tile to = {
      t.y,  (int64_t)tile.first * t.columns + column, t.columns, rows, columns, false,
      bias, (int64_t)tile.group * t.columns + column};
  to.write(sums);
}

// Blocks (tile of C, tile of O, expert).
__global__ void __launch_bounds__(THREADS, 2) weights_mma_kernel(weights_task<float> t) {
  OT_DYNAMIC_SHARED(ot_bf16, stages);
  const int e = (int)blockIdx.z, begin = t.g.offsets[e], n = t.g.offsets[e + 1] - begin;
  if (n == 0 && t.accumulate) return;
  const int row = (int)blockIdx.y * SIDE, column = (int)blockIdx.x * SIDE;
  const operand a = {(const ot_bf16 *)t.dy.data + (int64_t)begin * t.O + row, t.O,
                     at_most_side(t.O - row)};
  const operand b = {(const ot_bf16 *)t.x.data + (int64_t)begin * t.C + column, t.C,
                     at_most_side(t.C - column)};
  part_sums sums = {};
  multiply<true, true>(a, b, n, stages, sums);
  const written_tile to = {
      t.dw, ((int64_t)e * t.O + row) * t.C + column, t.C, a.count, b.count, t.accumulate, {}, 0};
  to.write(sums);
}

// ---- any types ----

template <class R>
__global__ void __launch_bounds__(OT_PRODUCT_THREADS) rows_kernel(rows_task<R> t) {
  const row_tile tile = row_tile_of<OT_PRODUCT_TILE>(t.g, (int)blockIdx.y);
  if (tile.first >= tile.end) return;
  const bool used = tile.group < t.g.E;
  const int64_t first = tile.first, matrix = (int64_t)tile.group * t.depth * t.columns;
  const ot_any<R> bias = {used ? t.bias.data : nullptr, t.bias.dtype};
  const ot_product<R> product = {tile.end - tile.first,
                                 t.columns,
                                 used ? t.depth : 0,
                                 {t.x, t.depth, 1, first * t.depth},
                                 {t.w, t.plain ? t.columns : 1, t.plain ? 1 : t.depth, matrix},
                                 {t.y, t.columns, 1, first * t.columns},
                                 {},
                                 {bias, 0, 1, (int64_t)tile.group * t.columns}};
  ot_multiply_tile(product, 0, (int64_t)blockIdx.x * OT_PRODUCT_TILE);
}

template <class R>
__global__ void __launch_bounds__(OT_PRODUCT_THREADS, sizeof(R) == 4 ? 3 : 2)
    weights_kernel(weights_task<R> t) {
  const int64_t e = blockIdx.z, begin = t.g.offsets[e];
  const ot_operand<R> dw = {t.dw, t.C, 1, e * t.O * t.C};
  ot_product<R> product = {t.O,
                           t.C,
                           t.g.offsets[e + 1] - begin,
                           {t.dy, 1, t.O, begin * t.O},
                           {t.x, t.C, 1, begin * t.C},
                           dw,
                           {},
                           {}};
  if (t.accumulate) product.addend = dw;
  ot_multiply_tile(product, (int64_t)blockIdx.y * OT_PRODUCT_TILE,
                   (int64_t)blockIdx.x * OT_PRODUCT_TILE);
}

// ---- launches ----

// True if matrices of 8-element chunks are multiplied on tensor cores: a and b [., depth or
// columns] in bf16, y in bf16 or float32.
bool fits_mma(const ot_op_attributes *a, const ot_tensor *const operands[2], const ot_tensor *y) {
  if (a->compute != OT_F32 || (y->type.dtype != OT_BF16 && y->type.dtype != OT_F32)) return false;
  const void *const result = y->data;
  bool fits = ot_fits_vectors(y->type.dtype, y->type.dim[1], &result, 1);
  for (int i = 0; i < 2; i++) {
    const ot_tensor_type &type = operands[i]->type;
    const void *const data = operands[i]->data;
    fits = fits && type.dtype == OT_BF16 && ot_fits_vectors(OT_BF16, type.dim[1], &data, 1);
  }
  return fits;
}

constexpr size_t stages_bytes = STAGES * STAGE * sizeof(ot_bf16);
static_assert(stages_bytes <= OT_LEAST_SHARED, "the tiles are too large");

template <bool PLAIN>
void multiply_rows_mma(const ot_kernel_call *call, const rows_task<float> &t) {
  const dim3 grid(ot_blocks(t.columns, SIDE), most_tiles(t.g, SIDE));
  ot_allow_shared(rows_mma_kernel<PLAIN>, stages_bytes);
  OT_LAUNCH(rows_mma_kernel<PLAIN>, grid, THREADS, stages_bytes, ot_cuda_stream_of(call), t);
}

template <class R>
void multiply_rows(const ot_kernel_call *call, const rows_task<R> &t) {
  const dim3 grid(ot_blocks(t.columns, OT_PRODUCT_TILE), most_tiles(t.g, OT_PRODUCT_TILE));
  OT_LAUNCH(rows_kernel<R>, grid, OT_PRODUCT_THREADS, 0, ot_cuda_stream_of(call), t);
}

template <class R, bool PLAIN>
void grouped_rows(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const y = &call->out[0];
  const ot_tensor *const operands[] = {&in[0], &in[1]};
  rows_task<R> t = {groups_of(call),
                    ot_any_of<R>(&in[0]),
                    ot_any_of<R>(&in[1]),
                    ot_any_of<R>(y),
                    {},
                    (int)in[0].type.dim[1],
                    (int)y->type.dim[1],
                    PLAIN};
  if (!PLAIN) t.bias = ot_any_of<R>(&in[3]);
  if constexpr (sizeof(R) == sizeof(float)) {
    if (fits_mma(call->attributes, operands, y)) {
      multiply_rows_mma<PLAIN>(call, t);
      return;
    }
  }
  multiply_rows(call, t);
}

// ---- gradients of weights and biases ----

enum { SUM_THREADS = 256, SUM_LANES = 16 };  // a block sums 16 vectors of columns, 16 rows at once

// Blocks (tile of columns, expert).
template <class R, class S, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    bias_kernel(groups g, const S *dy, int O, ot_any<R> dbias, bool accumulate) {
  constexpr int COLUMNS = SUM_THREADS / SUM_LANES * N;
  __shared__ R sums[SUM_LANES][COLUMNS];
  const int e = (int)blockIdx.y, end = g.offsets[e + 1], lane = threadIdx.x / (COLUMNS / N);
  const int first = (int)blockIdx.x * COLUMNS, at = threadIdx.x % (COLUMNS / N) * N;
  R sum[N] = {};
  if (first + at < O) {
#pragma unroll 4
    for (int row = g.offsets[e] + lane; row < end; row += SUM_LANES) {
      R value[N];
      ot_load(dy + (int64_t)row * O + first + at, value);
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] += value[k];
    }
  }
#pragma unroll
  for (int k = 0; k < N; k++) sums[lane][at + k] = sum[k];
  __syncthreads();
  const int c = (int)threadIdx.x;
  if (c >= COLUMNS || first + c >= O) return;
  R total = 0;
#pragma unroll
  for (int i = 0; i < SUM_LANES; i++) total += sums[i][c];
  dbias.add((int64_t)e * O + first + c, total, accumulate);
}

template <class R>
void bias_gradient(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0];
  const groups g = groups_of(call);
  const int O = (int)dy->type.dim[1];
  const void *const data = dy->data;
  const ot_dtype dtype = dy->type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, O, &data, 1), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const dim3 grid(ot_blocks(O, SUM_THREADS / SUM_LANES * N), (unsigned)g.E);
    OT_LAUNCH((bias_kernel<R, S, N>), grid, SUM_THREADS, 0, ot_cuda_stream_of(call), g,
              (const S *)dy->data, O, ot_any_of<R>(&call->out[1]), call->attributes->accumulate);
  });
}

void sum_weights_mma(const ot_kernel_call *call, const weights_task<float> &t) {
  const dim3 grid(ot_blocks(t.C, SIDE), ot_blocks(t.O, SIDE), (unsigned)t.g.E);
  ot_allow_shared(weights_mma_kernel, stages_bytes);
  OT_LAUNCH(weights_mma_kernel, grid, THREADS, stages_bytes, ot_cuda_stream_of(call), t);
}

template <class R>
void sum_weights(const ot_kernel_call *call, const weights_task<R> &t) {
  const dim3 grid(ot_blocks(t.C, OT_PRODUCT_TILE), ot_blocks(t.O, OT_PRODUCT_TILE),
                  (unsigned)t.g.E);
  OT_LAUNCH(weights_kernel<R>, grid, OT_PRODUCT_THREADS, 0, ot_cuda_stream_of(call), t);
}

template <class R>
void grouped_dw(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const dw = &call->out[0];
  const ot_tensor *const operands[] = {&in[0], &in[1]};
  const weights_task<R> t = {
      groups_of(call),        ot_any_of<R>(&in[0]),   ot_any_of<R>(&in[1]),        ot_any_of<R>(dw),
      (int)in[0].type.dim[1], (int)in[1].type.dim[1], call->attributes->accumulate};
  if (call->out[1].data) bias_gradient<R>(call);
  if constexpr (sizeof(R) == sizeof(float)) {
    if (fits_mma(call->attributes, operands, dw)) {
      sum_weights_mma(call, t);
      return;
    }
  }
  sum_weights(call, t);
}

}  // namespace

extern "C" const ot_kernel_entry ot_grouped_cuda_f32[] = {
    {OT_OP_GROUPED_LINEAR, grouped_rows<float, false>},
    {OT_OP_GROUPED_LINEAR_DX, grouped_rows<float, true>},
    {OT_OP_GROUPED_LINEAR_DW, grouped_dw<float>},
    {}};

extern "C" const ot_kernel_entry ot_grouped_cuda_f64[] = {
    {OT_OP_GROUPED_LINEAR, grouped_rows<double, false>},
    {OT_OP_GROUPED_LINEAR_DX, grouped_rows<double, true>},
    {OT_OP_GROUPED_LINEAR_DW, grouped_dw<double>},
    {}};
