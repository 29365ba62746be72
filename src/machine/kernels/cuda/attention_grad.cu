// SPDX-License-Identifier: Apache-2.0
// Attention backward for all storage types and attributes, of whole sequences and of blocks of a
// ring, in two kernels (Dao et al. 2022,
// algorithm 4) without atomics: a block of the first owns the gradients of a tile of keys and
// values and visits the tiles of queries of all heads of its group; a block of the second owns the
// gradient of a tile of queries and visits the tiles of keys. Both compute, from lse and delta_i =
// do_i . o_i,
//   p_ij = exp(s_ij - lse_i)    dp_ij = do_i . v_j    ds_ij = p_ij (dp_ij - delta_i) slope_ij
#include "kernels/cuda/attention_tile.cuh"

extern "C" {
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/tables.h"
#include "workspace/blocks.h"
}

namespace {

enum { WARPS = OT_TILE_THREADS / 32 };

// A gradient and what is added to it, or null.
template <class R>
struct gradient {
  ot_heads<R> to, before;
};

template <class R>
struct backward {
  ot_attention_shape<R> shape;
  ot_heads<R> queries, keys, doutput;
  gradient<R> dqueries, dkeys;
  int first_key;   // head of `keys` and dkeys; the values are G heads further
  const R *lse;    // [B T, H]
  const R *delta;  // [B T, H]
};

// ---- delta ----

// The lane's share of do . o for N neighbouring columns at once.
template <int N, class R, class S>
static __device__ __forceinline__ R dot_of_lane(const S *x, const S *y, int D) {
  R sum = 0;
  for (int d = threadIdx.x % 32 * N; d < D; d += 32 * N) {
    R a[N], b[N];
    ot_load(x + d, a);
    ot_load(y + d, b);
#pragma unroll
    for (int k = 0; k < N; k++) sum = fma(a[k], b[k], sum);
  }
  return sum;
}

// do . o of a token and head, the same in all lanes of the warp.
template <class R>
static __device__ __forceinline__ R dot_of_head(const ot_heads<R> &doutput, const ot_heads<R> &o,
                                                int64_t token, int head) {
  const int64_t first = o.at(token, head);
  const ot_any<R> &x = doutput.tensor, &y = o.tensor;
  if (x.dtype == OT_BF16 && y.dtype == OT_BF16 && doutput.vectors && o.vectors) {
    const ot_bf16 *const from = (const ot_bf16 *)x.data, *const other = (const ot_bf16 *)y.data;
    return ot_warp_sum(dot_of_lane<8, R>(from + first, other + first, o.D));
  }
  R sum = 0;
  for (int d = threadIdx.x % 32; d < o.D; d += 32) sum = fma(x[first + d], y[first + d], sum);
  return ot_warp_sum(sum);
}

// One warp per token and head.
template <class R>
static __global__ void __launch_bounds__(OT_TILE_THREADS)
    delta_kernel(ot_heads<R> doutput, ot_heads<R> o, int64_t items, R *delta) {
  const int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
  if (item >= items) return;
  const R sum = dot_of_head(doutput, o, item / o.heads, (int)(item % o.heads));
  if (threadIdx.x % 32 == 0) delta[item] = sum;
}

// ---- tiles ----

// The values of a query that p and ds need.
template <class R>
struct query_state {
  R lse, delta;
  ot_seen seen;
};

template <class R>
static __device__ __forceinline__ query_state<R> query_state_of(const backward<R> &f, int b, int h,
                                                                int query) {
  query_state<R> state = {0, 0, f.shape.seen(b, query)};
  if (query >= f.shape.T) return state;
  const int64_t i = ((int64_t)b * f.shape.T + query) * f.shape.H + h;
  state.lse = f.lse[i];
  state.delta = f.delta[i];
  return state;
}

// A query and a key of a sequence and head.
struct pair {
  int b, h, query, key;
};

// Turns the products q . k and do . v of a pair into p, with dropout, and ds.
template <class R>
static __device__ __forceinline__ void turn_pair(const ot_attention_shape<R> &shape, pair at,
                                                 const query_state<R> &state, R *p, R *ds) {
  if (at.key < state.seen.low || at.key >= state.seen.high) {
    *p = 0;
    *ds = 0;
    return;
  }
  const R score = shape.score(*p);
  const R probability = exp(score - state.lse);
  const R keep = shape.keep(at.b, at.h, at.query, at.key);
  *p = probability * keep;
  *ds = probability * (keep * *ds - state.delta) * shape.slope(score);
}

// ---- keys and values ----

template <class R, int DMAX>
struct key_tiles {
  R *keys, *values, *queries, *outputs, *scores;

  __device__ explicit key_tiles(R *shared) {
    using t = ot_tiling<R, DMAX>;
    keys = shared;
    values = keys + t::HEAD;
    queries = values + t::HEAD;
    outputs = queries + t::HEAD;
    scores = outputs + t::HEAD;
  }
};

// Adds the tile of queries from `first` on of head `h` to the gradients of the keys from `key` on.
template <class R, int DMAX, class Tiles, int M, int C, int VEC>
static __device__ __forceinline__ void add_queries(const backward<R> &f, pair at,
                                                   const Tiles &tiles, R (&dkeys)[M][C][VEC],
                                                   R (&dvalues)[M][C][VEC]) {
  const ot_attention_shape<R> &shape = f.shape;
  const int tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
  const int64_t token = (int64_t)at.b * shape.T + at.query;
  ot_load_rows<R, DMAX>(f.queries, token, at.h, shape.T - at.query, tiles.queries);
  ot_load_rows<R, DMAX>(f.doutput, token, at.h, shape.T - at.query, tiles.outputs);
  __syncthreads();
  R p[M][M], ds[M][M];
  ot_row_products<R, DMAX>(tiles.keys, tiles.queries, shape.D, p);
  ot_row_products<R, DMAX>(tiles.values, tiles.outputs, shape.D, ds);
#pragma unroll
  for (int j = 0; j < M; j++) {
    const int query = at.query + tx + OT_TILE_SIDE * j;
    const query_state<R> state = query_state_of(f, at.b, at.h, query);
#pragma unroll
    for (int i = 0; i < M; i++) {
      const int key = at.key + ty + OT_TILE_SIDE * i;
      turn_pair(shape, {at.b, at.h, query, key}, state, &p[i][j], &ds[i][j]);
    }
  }
  // Half a warp reads only the scores that it has written.
  ot_share_scores<R, DMAX>(p, tiles.scores);
  __syncwarp();
  ot_add_products<R, DMAX>(tiles.scores, tiles.outputs, shape.D, dvalues);
  __syncwarp();
  ot_share_scores<R, DMAX>(ds, tiles.scores);
  __syncwarp();
  ot_add_products<R, DMAX>(tiles.scores, tiles.queries, shape.D, dkeys);
  __syncthreads();
}

// True in all threads if a query of the tile from `first` on sees a key from `key` to before `end`.
template <class R, int DMAX>
static __device__ __forceinline__ bool any_sees(const ot_attention_shape<R> &shape, int b,
                                                int first, int key, int end) {
  bool sees = false;
  if (threadIdx.x < ot_tiling<R, DMAX>::ROWS) {
    const ot_seen seen = shape.seen(b, first + (int)threadIdx.x);
    sees = seen.low < end && seen.high > key;
  }
  return __syncthreads_or(sees) != 0;
}

// Queries [low, high), of which some may see a key from `key` to before `end`, from a multiple of a
// tile on.
template <class R, int DMAX>
static __device__ __forceinline__ ot_seen seers_of(const ot_attention_shape<R> &shape, int key,
                                                   int end) {
  constexpr int ROWS = ot_tiling<R, DMAX>::ROWS;
  const int first = shape.queries.before(shape.keys.position(key));
  const int last = shape.keys.position(end - 1) + shape.window;
  return {first / ROWS * ROWS, shape.window > 0 ? shape.queries.before(last) : shape.T};
}

// factor * sums, and what is added to them, to the rows of a gradient.
template <class R, int DMAX, int M, int C, int VEC>
static __device__ __forceinline__ void store_gradient(const gradient<R> &d, int64_t token, int head,
                                                      int n, R factor, R (&sums)[M][C][VEC]) {
  R factors[M], one[M];
#pragma unroll
  for (int i = 0; i < M; i++) {
    factors[i] = factor;
    one[i] = 1;
  }
  if (d.before.tensor.data) {
    ot_add_rows<R, DMAX>(d.before, token, head, n, one, factors, sums);
  }
  ot_store_rows<R, DMAX>(d.to, token, head, n, factors, sums);
}

// Blocks (sequence and key head, key tile).
template <class R, int DMAX>
static __global__ void __launch_bounds__(OT_TILE_THREADS, 1) key_gradient_kernel(backward<R> f) {
  using t = ot_tiling<R, DMAX>;
  OT_DYNAMIC_SHARED(R, shared);
  const key_tiles<R, DMAX> tiles(shared);
  const ot_attention_shape<R> &shape = f.shape;
  const int T = shape.T, heads = shape.H / shape.G;
  const int b = blockIdx.x / shape.G, g = blockIdx.x % shape.G, key = blockIdx.y * t::ROWS;
  const int64_t token = (int64_t)b * T + key;
  const int key_head = f.first_key + g, value_head = key_head + shape.G;
  ot_load_rows<R, DMAX>(f.keys, token, key_head, T - key, tiles.keys);
  ot_load_rows<R, DMAX>(f.keys, token, value_head, T - key, tiles.values);
  R dkeys[t::M][t::C][t::VEC] = {}, dvalues[t::M][t::C][t::VEC] = {};
  const int end = key + t::ROWS < T ? key + t::ROWS : T;
  const ot_seen seers = seers_of<R, DMAX>(shape, key, end);
  for (int h = g * heads; h < (g + 1) * heads; h++) {
    for (int first = seers.low; first < seers.high; first += t::ROWS) {
      if (!any_sees<R, DMAX>(shape, b, first, key, end)) continue;
      add_queries<R, DMAX>(f, {b, h, first, key}, tiles, dkeys, dvalues);
    }
  }
  store_gradient<R, DMAX>(f.dkeys, token, key_head, T - key, shape.scale, dkeys);
  store_gradient<R, DMAX>(f.dkeys, token, value_head, T - key, (R)1, dvalues);
}

// ---- queries ----

// Blocks (sequence and head, query tile): in whole sequences the longest rows first.
template <class R, int DMAX>
static __global__ void __launch_bounds__(OT_TILE_THREADS, 1) query_gradient_kernel(backward<R> f) {
  using t = ot_tiling<R, DMAX>;
  constexpr int M = t::M;
  OT_DYNAMIC_SHARED(R, shared);
  const key_tiles<R, DMAX> tiles(shared);
  const ot_attention_shape<R> &shape = f.shape;
  const int T = shape.T, tx = threadIdx.x % OT_TILE_SIDE, ty = threadIdx.x / OT_TILE_SIDE;
  const int b = blockIdx.x / shape.H, h = blockIdx.x % shape.H;
  const int first = (int)(gridDim.y - 1 - blockIdx.y) * t::ROWS;
  const int key_head = f.first_key + h / (shape.H / shape.G);
  const int64_t token = (int64_t)b * T;
  ot_load_rows<R, DMAX>(f.queries, token + first, h, T - first, tiles.queries);
  ot_load_rows<R, DMAX>(f.doutput, token + first, h, T - first, tiles.outputs);
  query_state<R> states[M];
#pragma unroll
  for (int i = 0; i < M; i++) {
    states[i] = query_state_of(f, b, h, first + ty + OT_TILE_SIDE * i);
  }
  R dqueries[M][t::C][t::VEC] = {};
  const ot_seen seen = ot_seen_by_tile<R, DMAX>(shape, b, first);
  for (int key = seen.low; key < seen.high; key += t::ROWS) {
    ot_load_rows<R, DMAX>(f.keys, token + key, key_head, T - key, tiles.keys);
    ot_load_rows<R, DMAX>(f.keys, token + key, key_head + shape.G, T - key, tiles.values);
    __syncthreads();
    R p[M][M], ds[M][M];
    ot_row_products<R, DMAX>(tiles.queries, tiles.keys, shape.D, p);
    ot_row_products<R, DMAX>(tiles.outputs, tiles.values, shape.D, ds);
#pragma unroll
    for (int i = 0; i < M; i++) {
#pragma unroll
      for (int j = 0; j < M; j++) {
        const pair at = {b, h, first + ty + OT_TILE_SIDE * i, key + tx + OT_TILE_SIDE * j};
        turn_pair(shape, at, states[i], &p[i][j], &ds[i][j]);
      }
    }
    ot_share_scores<R, DMAX>(ds, tiles.scores);
    __syncwarp();
    ot_add_products<R, DMAX>(tiles.scores, tiles.keys, shape.D, dqueries);
    __syncthreads();
  }
  store_gradient<R, DMAX>(f.dqueries, token + first, h, T - first, shape.scale, dqueries);
}

template <class R, int DMAX>
static void run_backward(const ot_kernel_call *call, const backward<R> &f) {
  using t = ot_tiling<R, DMAX>;
  const unsigned B = (unsigned)(call->in[1].type.dim[0] / f.shape.T);
  void *const stream = ot_cuda_stream_of(call);
  const unsigned tiles = ot_blocks(f.shape.T, t::ROWS);
  constexpr size_t shared = (4 * t::HEAD + t::ROWS * t::SCORES) * sizeof(R);
  static_assert(shared <= OT_LEAST_SHARED, "the tiles are too large");
  ot_allow_shared(key_gradient_kernel<R, DMAX>, shared);
  ot_allow_shared(query_gradient_kernel<R, DMAX>, shared);
  OT_LAUNCH((key_gradient_kernel<R, DMAX>), dim3(B * (unsigned)f.shape.G, tiles), OT_TILE_THREADS,
            shared, stream, f);
  OT_LAUNCH((query_gradient_kernel<R, DMAX>), dim3(B * (unsigned)f.shape.H, tiles), OT_TILE_THREADS,
            shared, stream, f);
}

// delta of do and `o`, to workspace.
template <class R>
static void run_delta(const ot_kernel_call *call, const ot_heads<R> &doutput, const ot_tensor *o) {
  const int64_t items = o->type.dim[0] * doutput.heads;
  OT_LAUNCH(delta_kernel<R>, ot_blocks(items, WARPS), OT_TILE_THREADS, 0, ot_cuda_stream_of(call),
            doutput, ot_heads_of<R>(o, doutput.heads, doutput.D), items, (R *)call->workspace);
}

template <class R>
static void attention_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const int64_t H = a->num_heads, D = a->head_dim, Q = H + 2 * a->num_kv_heads;
  if (in[1].type.dim[0] == 0) return;
  backward<R> f = {};
  f.shape = ot_attention_shape_of<R>(a, &in[2]);
  f.queries = f.keys = ot_heads_of<R>(&in[1], Q, D);
  f.doutput = ot_heads_of<R>(&in[0], H, D);
  f.dqueries.to = f.dkeys.to = ot_heads_of<R>(&call->out[0], Q, D);
  f.first_key = (int)H;
  f.lse = (const R *)in[5].data;
  f.delta = (const R *)call->workspace;
  run_delta(call, f.doutput, &in[4]);
  if (ot_attention_grad_hopper(call, (const float *)call->workspace)) return;
  if (ot_attention_grad_mma(call, (const float *)call->workspace)) return;
  ot_for_head_dim(D, [&](auto dmax) { run_backward<R, decltype(dmax)::value>(call, f); });
}

template <class R>
static void attention_block_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t H = a->num_heads, D = a->head_dim, G = a->num_kv_heads;
  if (in[1].type.dim[0] == 0) return;
  backward<R> f = {};
  f.shape = ot_attention_block_shape_of<R>(a, &in[3]);
  f.queries = ot_heads_of<R>(&in[1], H + 2 * G, D);
  f.keys = ot_heads_of<R>(&in[2], 2 * G, D);
  f.doutput = ot_heads_of<R>(&in[0], H, D);
  f.dqueries = {ot_heads_of<R>(&out[0], H, D), ot_heads_of<R>(&in[7], H, D)};
  f.dkeys = {ot_heads_of<R>(&out[1], 2 * G, D), ot_heads_of<R>(&in[8], 2 * G, D)};
  f.lse = (const R *)in[6].data;
  f.delta = (const R *)call->workspace;
  run_delta(call, f.doutput, &in[5]);
  if (ot_attention_block_grad_hopper(call, (const float *)call->workspace)) return;
  if (ot_attention_block_grad_mma(call, (const float *)call->workspace)) return;
  ot_for_head_dim(D, [&](auto dmax) { run_backward<R, decltype(dmax)::value>(call, f); });
}

// ---- sinks ----

template <class R>
struct sink_gradient {
  ot_heads<R> doutput, o;
  const R *lse;  // [rows, H]
  ot_any<R> sinks, dsinks;
  int first_sink, count;  // of all sinks
  int64_t rows, row_blocks, block_rows;
  double *parts;  // [row_blocks, H]
  bool accumulate;
};

// Blocks (block of rows, head). A warp has every WARPS-th row of the block.
template <class R>
static __global__ void __launch_bounds__(OT_TILE_THREADS, OT_LEAST_BLOCKS)
    sink_parts_kernel(sink_gradient<R> s) {
  __shared__ double parts[WARPS];
  const int head = blockIdx.y;
  const int64_t first = blockIdx.x * s.block_rows;
  const int64_t end = first + s.block_rows < s.rows ? first + s.block_rows : s.rows;
  const R sink = s.sinks[s.first_sink + head];
  double sum = 0;
  for (int64_t r = first + threadIdx.x / 32; r < end; r += WARPS) {
    const R delta = dot_of_head(s.doutput, s.o, r, head);
    sum -= (double)(exp(sink - s.lse[r * s.o.heads + head]) * delta);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < WARPS; w++) sum += parts[w];
  s.parts[(int64_t)blockIdx.x * s.o.heads + head] = sum;
}

template <class R>
static __global__ void __launch_bounds__(OT_TILE_THREADS) sink_sums_kernel(sink_gradient<R> s) {
  const int i = blockIdx.x * OT_TILE_THREADS + threadIdx.x, head = i - s.first_sink;
  if (i >= s.count) return;
  double sum = 0;
  for (int64_t b = 0; b < s.row_blocks && head >= 0 && head < s.o.heads; b++) {
    sum += s.parts[b * s.o.heads + head];
  }
  s.dsinks.add(i, (R)sum, s.accumulate);
}

template <class R>
static void attention_sinks_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const int64_t rows = in[0].type.dim[0], blocks = ot_row_blocks(rows);
  const sink_gradient<R> s = {ot_heads_of<R>(&in[0], a->num_heads, a->head_dim),
                              ot_heads_of<R>(&in[1], a->num_heads, a->head_dim),
                              (const R *)in[2].data,
                              ot_any_of<R>(&in[3]),
                              ot_any_of<R>(&call->out[0]),
                              (int)a->first_sink,
                              (int)in[3].type.dim[0],
                              rows,
                              blocks,
                              (rows + blocks - 1) / blocks,
                              (double *)call->workspace,
                              a->accumulate};
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(sink_parts_kernel<R>, dim3((unsigned)blocks, (unsigned)a->num_heads), OT_TILE_THREADS,
            0, stream, s);
  OT_LAUNCH(sink_sums_kernel<R>, ot_blocks(s.count, OT_TILE_THREADS), OT_TILE_THREADS, 0, stream,
            s);
}

}  // namespace

extern "C" const ot_kernel_entry ot_attention_grad_cuda_f32[] = {
    {OT_OP_ATTENTION_GRAD, attention_grad<float>},
    {OT_OP_ATTENTION_BLOCK_GRAD, attention_block_grad<float>},
    {OT_OP_ATTENTION_SINKS_GRAD, attention_sinks_grad<float>},
    {}};

extern "C" const ot_kernel_entry ot_attention_grad_cuda_f64[] = {
    {OT_OP_ATTENTION_GRAD, attention_grad<double>},
    {OT_OP_ATTENTION_BLOCK_GRAD, attention_block_grad<double>},
    {OT_OP_ATTENTION_SINKS_GRAD, attention_sinks_grad<double>},
    {}};
