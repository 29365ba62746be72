// SPDX-License-Identifier: Apache-2.0
// Attention forward for all storage types and attributes, of whole sequences and of blocks of a
// ring. A block of threads has a tile of queries of one head and visits the tiles of keys from the
// first to the last visible one, with a running maximum and sum per query (online softmax).
#include "kernels/cuda/attention_tile.cuh"

extern "C" {
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/tables.h"
}

namespace {

template <class R>
struct forward {
  ot_attention_shape<R> shape;
  ot_heads<R> queries, keys, o;
  int first_key;         // head of `keys`; the values are G heads further
  R *lse;                // [B T, H]
  ot_heads<R> o_before;  // of other blocks of keys, or null
  const R *lse_before;
  ot_any<R> sinks;  // or null; not with o_before
  int first_sink;
  double *maxima;  // [blocks] the largest score of each, or null
};

// State of the thread's queries, the same in all threads of half a warp.
template <class R, int M>
struct running {
  R largest[M], sum[M];
  ot_seen seen[M];
};

// Turns products of the thread's queries and keys from at[3] on into exp(score - largest so
// far), and rescales the sums of the tiles before.
template <class R, class State, int M, int C, int VEC>
static __device__ __forceinline__ void exponentiate(const ot_attention_shape<R> &shape,
                                                    const int *at, R (&p)[M][M], State &state,
                                                    R (&output)[M][C][VEC]) {
  const int tx = threadIdx.x % OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
    R largest = state.largest[i];
#pragma unroll
    for (int j = 0; j < M; j++) {
      const int key = at[3] + tx + OT_TILE_SIDE * j;
      const bool seen = key >= state.seen[i].low && key < state.seen[i].high;
      p[i][j] = seen ? shape.score(p[i][j]) : -(R)INFINITY;
      largest = p[i][j] > largest ? p[i][j] : largest;
    }
    largest = ot_half_warp_max(largest);
    // No visible key yet: any finite base makes exp(-inf - base) zero.
    const R base = largest > -(R)INFINITY ? largest : 0;
    const R rescale = exp(state.largest[i] - base);
    R sum = 0;
#pragma unroll
    for (int j = 0; j < M; j++) {
      p[i][j] = exp(p[i][j] - base);
      sum += p[i][j];
    }
    state.sum[i] = state.sum[i] * rescale + ot_half_warp_sum(sum);
    state.largest[i] = largest;
#pragma unroll
    for (int c = 0; c < C; c++) {
#pragma unroll
      for (int k = 0; k < VEC; k++) output[i][c][k] *= rescale;
    }
  }
}

// Multiplies by the dropout mask.
template <class R, int M>
static __device__ __forceinline__ void drop(const ot_attention_shape<R> &shape, const int *at,
                                            R (&p)[M][M]) {
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
#pragma unroll
  for (int i = 0; i < M; i++) {
#pragma unroll
    for (int j = 0; j < M; j++) {
      p[i][j] *=
          shape.keep(at[0], at[1], at[2] + ty + OT_TILE_SIDE * i, at[3] + tx + OT_TILE_SIDE * j);
    }
  }
}

// The stored lse, and the factors of the output and of o_before. What earlier blocks have seen, or
// a sink, is one more score; a sink has no value.
template <class R, int M>
static __device__ __forceinline__ void finish(const forward<R> &f, const int *at,
                                              const running<R, M> &state, R (&factor)[M],
                                              R (&weight)[M]) {
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE, T = f.shape.T;
  const R sink = f.sinks.data ? f.sinks[f.first_sink + at[1]] : -(R)INFINITY;
#pragma unroll
  for (int i = 0; i < M; i++) {
    const int query = at[2] + ty + OT_TILE_SIDE * i;
    const int64_t row = ((int64_t)at[0] * T + query) * f.shape.H + at[1];
    const R before = f.lse_before && query < T ? f.lse_before[row] : sink;
    const R largest = before > state.largest[i] ? before : state.largest[i];
    const R base = largest > -(R)INFINITY ? largest : 0;
    const R block = exp(state.largest[i] - base), rest = exp(before - base);
    const R sum = rest + block * state.sum[i];
    factor[i] = sum > 0 ? block / sum : 0;
    weight[i] = sum > 0 ? rest / sum : 0;
    if (tx == 0 && query < T) f.lse[row] = sum > 0 ? base + log(sum) : -(R)INFINITY;
  }
}

template <class R, int M>
static __device__ __forceinline__ void write_maximum(const running<R, M> &state, double *maximum) {
  __shared__ R parts[OT_TILE_THREADS / 32];
  R largest = -(R)INFINITY;
#pragma unroll
  for (int i = 0; i < M; i++) largest = state.largest[i] > largest ? state.largest[i] : largest;
  largest = ot_block_max<OT_TILE_THREADS>(largest, parts);
  if (threadIdx.x == 0) *maximum = (double)largest;
}

// Blocks (sequence and head, query tile): in whole sequences the longest rows first.
template <class R, int DMAX>
static __global__ void __launch_bounds__(OT_TILE_THREADS, 1) forward_kernel(forward<R> f) {
  using t = ot_tiling<R, DMAX>;
  OT_DYNAMIC_SHARED(R, queries);
  R *const rows = queries + t::HEAD, *const scores = rows + t::HEAD;
  const ot_attention_shape<R> &shape = f.shape;
  const int T = shape.T, ty = threadIdx.x / OT_TILE_SIDE;
  int at[] = {(int)blockIdx.x / shape.H, (int)blockIdx.x % shape.H,
              (int)(gridDim.y - 1 - blockIdx.y) * t::ROWS, 0};
  const int64_t token = (int64_t)at[0] * T;
  const int first = at[2], key_head = f.first_key + at[1] / (shape.H / shape.G);
  running<R, t::M> state;
#pragma unroll
  for (int i = 0; i < t::M; i++) {
    state.largest[i] = -(R)INFINITY;
    state.sum[i] = 0;
    state.seen[i] = shape.seen(at[0], first + ty + OT_TILE_SIDE * i);
  }
  R output[t::M][t::C][t::VEC] = {};
  ot_load_rows<R, DMAX>(f.queries, token + first, at[1], T - first, queries);
  const ot_seen seen = ot_seen_by_tile<R, DMAX>(shape, at[0], first);
  for (int key = seen.low; key < seen.high; key += t::ROWS) {
    at[3] = key;
    R p[t::M][t::M];
    ot_load_rows<R, DMAX>(f.keys, token + key, key_head, T - key, rows);
    __syncthreads();
    ot_row_products<R, DMAX>(queries, rows, shape.D, p);
    __syncthreads();
    ot_load_rows<R, DMAX>(f.keys, token + key, key_head + shape.G, T - key, rows);
    exponentiate(shape, at, p, state, output);
    if (shape.dropout_threshold > 0) drop(shape, at, p);
    ot_share_scores<R, DMAX>(p, scores);
    __syncthreads();
    ot_add_products<R, DMAX>(scores, rows, shape.D, output);
    __syncthreads();
  }
  R factor[t::M], weight[t::M];
  finish(f, at, state, factor, weight);
  if (f.lse_before) {
    ot_add_rows<R, DMAX>(f.o_before, token + first, at[1], T - first, weight, factor, output);
  }
  ot_store_rows<R, DMAX>(f.o, token + first, at[1], T - first, factor, output);
  if (f.maxima) write_maximum(state, f.maxima + (int64_t)blockIdx.y * gridDim.x + blockIdx.x);
}

// One block: max_logit = max(max_logit, maxima).
static __global__ void __launch_bounds__(OT_TILE_THREADS)
    maximum_kernel(const double *maxima, int64_t n, double *max_logit) {
  __shared__ double parts[OT_TILE_THREADS / 32];
  double largest = *max_logit;
  for (int64_t i = threadIdx.x; i < n; i += OT_TILE_THREADS) {
    largest = maxima[i] > largest ? maxima[i] : largest;
  }
  largest = ot_block_max<OT_TILE_THREADS>(largest, parts);
  if (threadIdx.x == 0) *max_logit = largest;
}

// Returns the number of blocks.
template <class R, int DMAX>
static int64_t run_forward(const ot_kernel_call *call, const forward<R> &f) {
  using t = ot_tiling<R, DMAX>;
  const int64_t rows = call->in[0].type.dim[0];
  const dim3 grid((unsigned)(rows / f.shape.T * f.shape.H), ot_blocks(f.shape.T, t::ROWS));
  constexpr size_t shared = (2 * t::HEAD + t::ROWS * t::SCORES) * sizeof(R);
  static_assert(shared <= OT_LEAST_SHARED, "the tiles are too large");
  ot_allow_shared(forward_kernel<R, DMAX>, shared);
  OT_LAUNCH((forward_kernel<R, DMAX>), grid, OT_TILE_THREADS, shared, ot_cuda_stream_of(call), f);
  return (int64_t)grid.x * grid.y;
}

template <class R>
static int64_t run_any(const ot_kernel_call *call, const forward<R> &f) {
  int64_t blocks = 0;
  ot_for_head_dim(f.shape.D,
                  [&](auto dmax) { blocks = run_forward<R, decltype(dmax)::value>(call, f); });
  return blocks;
}

static void add_maximum(const ot_kernel_call *call, int64_t blocks) {
  double *const max_logit = (double *)call->out[2].data;
  if (!max_logit) return;
  OT_LAUNCH(maximum_kernel, 1, OT_TILE_THREADS, 0, ot_cuda_stream_of(call),
            (const double *)call->workspace, blocks, max_logit);
}

template <class R>
static void attention(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  if (in[0].type.dim[0] == 0) return;
  double *const maxima = out[2].data ? (double *)call->workspace : NULL;
  int64_t blocks = 0;
  if (!ot_attention_hopper(call, maxima, &blocks) && !ot_attention_mma(call, maxima, &blocks)) {
    forward<R> f = {};
    f.shape = ot_attention_shape_of<R>(a, &in[1]);
    f.queries = f.keys = ot_heads_of<R>(&in[0], a->num_heads + 2 * a->num_kv_heads, a->head_dim);
    f.first_key = (int)a->num_heads;
    f.o = ot_heads_of<R>(&out[0], a->num_heads, a->head_dim);
    f.lse = (R *)out[1].data;
    f.sinks = ot_any_of<R>(&in[3]);
    f.first_sink = (int)a->first_sink;
    f.maxima = maxima;
    blocks = run_any<R>(call, f);
  }
  add_maximum(call, blocks);
}

template <class R>
static void attention_block(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  if (in[0].type.dim[0] == 0) return;
  double *const maxima = out[2].data ? (double *)call->workspace : NULL;
  int64_t blocks = 0;
  if (ot_attention_block_hopper(call, maxima, &blocks) ||
      ot_attention_block_mma(call, maxima, &blocks)) {
    add_maximum(call, blocks);
    return;
  }
  forward<R> f = {};
  f.shape = ot_attention_block_shape_of<R>(a, &in[2]);
  f.queries = ot_heads_of<R>(&in[0], a->num_heads + 2 * a->num_kv_heads, a->head_dim);
  f.keys = ot_heads_of<R>(&in[1], 2 * a->num_kv_heads, a->head_dim);
  f.o = ot_heads_of<R>(&out[0], a->num_heads, a->head_dim);
  f.lse = (R *)out[1].data;
  f.o_before = ot_heads_of<R>(&in[4], a->num_heads, a->head_dim);
  f.lse_before = (const R *)in[5].data;
  f.sinks = ot_any_of<R>(&in[6]);
  f.first_sink = (int)a->first_sink;
  f.maxima = maxima;
  add_maximum(call, run_any<R>(call, f));
}

}  // namespace

extern "C" const ot_kernel_entry ot_attention_cuda_f32[] = {
    {OT_OP_ATTENTION, attention<float>}, {OT_OP_ATTENTION_BLOCK, attention_block<float>}, {}};

extern "C" const ot_kernel_entry ot_attention_cuda_f64[] = {
    {OT_OP_ATTENTION, attention<double>}, {OT_OP_ATTENTION_BLOCK, attention_block<double>}, {}};
