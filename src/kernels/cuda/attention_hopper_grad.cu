// SPDX-License-Identifier: Apache-2.0
// Attention backward on Hopper in two kernels, as in attention_mma_grad.cu. A block owns two tiles
// of OWN rows, keys and values or queries and output gradients, a warpgroup 64 rows of both, and
// visits pairs of tiles of OTHERS rows of the other kind. One warpgroup copies, with TMA; the
// others compute.
#include "kernels/cuda/attention_gradient.cuh"
#include "kernels/cuda/attention_hopper.cuh"

extern "C" {
#include "kernels/cuda/attention_hopper.h"
}

namespace {

enum { GROUPS = 2, THREADS = OT_WARPGROUP * (1 + GROUPS), OWN = 64 * GROUPS, OTHERS = 64 };
enum { WARPS = 4 * GROUPS, STAGES = 2, COPY_REGISTERS = 24, COMPUTE_REGISTERS = 240 };

struct backward {
  ot_attention_shape<float> shape;
  ot_bf16 *dqkv;
  ot_softmax_rows rows;
};

// Of the own tiles and of the visited ones: those of the first kind, queries or keys, and of the
// second, output gradients or values.
struct maps {
  ot_tensor_map own[2], others[2];
};

// The own tiles and the visited ones have landed; those have been read by all warps that compute.
struct barriers {
  uint64_t own, others[STAGES], read[STAGES];
};

// `arrivals`: of threads, when visited tiles have landed.
static __device__ __forceinline__ void init(barriers &bar, int arrivals) {
  ot_barrier_init(&bar.own, 1);
  for (int i = 0; i < STAGES; i++) {
    ot_barrier_init(&bar.others[i], arrivals);
    ot_barrier_init(&bar.read[i], WARPS);
  }
  ot_barrier_fence();
}

// Visit n, from 1 + STAGES on, may overwrite what visit n - STAGES has read.
static __device__ __forceinline__ void wait_until_read(barriers &bar, int n) {
  if (n >= STAGES) ot_barrier_wait(&bar.read[n % STAGES], (n / STAGES + 1) & 1);
}

static __device__ __forceinline__ void wait_for_others(barriers &bar, int n) {
  ot_barrier_wait(&bar.others[n % STAGES], n / STAGES & 1);
}

// The tiles in shared memory: `first` are queries or keys, `second` output gradients or values.
template <int D>
struct tiles_of {
  static constexpr int OWN_BYTES = ot_tile_bytes<D, OWN>, OTHER_BYTES = ot_tile_bytes<D, OTHERS>;
  static constexpr int BYTES = 2 * OWN_BYTES + 2 * STAGES * OTHER_BYTES;
  unsigned char *own_first;

  __device__ unsigned char *own_second() const { return own_first + OWN_BYTES; }
  __device__ unsigned char *first(int n) const {
    return own_first + 2 * OWN_BYTES + n % STAGES * 2 * OTHER_BYTES;
  }
  __device__ unsigned char *second(int n) const { return first(n) + OTHER_BYTES; }
};

// Copies tiles of ROWS rows of both kinds. At: column of the first and the second, row, sequence.
struct copy_place {
  int first, second, row, sequence;
};

template <int D, int ROWS>
static __device__ __forceinline__ void copy_pair(const ot_tensor_map (&map)[2], copy_place at,
                                                 unsigned char *to, uint64_t *barrier) {
  constexpr int BYTES = ot_tile_bytes<D, ROWS>;
  ot_barrier_expect(barrier, 2 * BYTES);
  ot_copy_head<D, ROWS>(to, map[0], at.first, at.row, at.sequence, barrier);
  ot_copy_head<D, ROWS>(to + BYTES, map[1], at.second, at.row, at.sequence, barrier);
}

// The scores and dp of the warpgroup's rows with visit n.
template <int D>
static __device__ __forceinline__ void multiply_pair(const tiles_of<D> &tiles, int row, int n,
                                                     float (&s)[1][OTHERS / 8][4],
                                                     float (&dp)[1][OTHERS / 8][4]) {
  ot_products_begin();
  ot_multiply_rows<D, OWN, OTHERS>(tiles.own_first, row, tiles.first(n), s[0]);
  ot_multiply_rows<D, OWN, OTHERS>(tiles.own_second(), row, tiles.second(n), dp[0]);
  ot_products_end();
  ot_products_wait<0>();
  ot_products_hold(s[0]);
  ot_products_hold(dp[0]);
}

// factor * sums of the warp's rows, by way of a tile that its warpgroup has read.
template <int D>
static __device__ __forceinline__ void store(const float (&sums)[D / 8][4], float factor,
                                             unsigned char *tile, int row, ot_bf16 *to,
                                             int64_t step, int n) {
  const float factors[2] = {factor, factor};
  ot_store_panels<D, OWN>(sums, factors, tile, row, to, step, n);
}

static __device__ __forceinline__ int64_t qkv_step(const ot_attention_shape<float> &shape, int D) {
  return (int64_t)(shape.H + 2 * shape.G) * D;
}

// ---- keys and values ----

// Keys of a head and sequence, and the queries that see them: visit n is tile n % tiles of query
// head n / tiles of the group.
struct key_part {
  int b, g, key, first_query, tiles, visits;

  __device__ int query(int n) const { return first_query + n % tiles * OTHERS; }
  __device__ int head(const ot_attention_shape<float> &shape, int n) const {
    return g * (shape.H / shape.G) + n / tiles;
  }
};

// By one thread.
template <int D>
static __device__ __forceinline__ void copy_for_keys(const maps &m, const backward &f,
                                                     const key_part &at, const tiles_of<D> &tiles,
                                                     barriers &bar) {
  copy_pair<D, OWN>(m.own, {at.g * D, (at.g + f.shape.G) * D, at.key, at.b}, tiles.own_first,
                    &bar.own);
  for (int n = 0; n < at.visits; n++) {
    const int column = at.head(f.shape, n) * D;
    wait_until_read(bar, n);
    copy_pair<D, OTHERS>(m.others, {column, column, at.query(n), at.b}, tiles.first(n),
                         &bar.others[n % STAGES]);
  }
}

// By OTHERS threads: one query of each visit.
static __device__ __forceinline__ void give_states(const backward &f, const key_part &at,
                                                   ot_query_state (&states)[STAGES][OTHERS],
                                                   barriers &bar) {
  const int i = (int)threadIdx.x % OTHERS;
  for (int n = 0; n < at.visits; n++) {
    const ot_query_state state =
        ot_query_state_of<false>(f.shape, f.rows, at.b, at.head(f.shape, n), at.query(n) + i);
    wait_until_read(bar, n);
    states[n % STAGES][i] = state;
    ot_barrier_arrive(&bar.others[n % STAGES]);
  }
}

template <int D>
static __device__ __forceinline__ void compute_keys(const backward &f, const key_part &at,
                                                    const tiles_of<D> &tiles,
                                                    const ot_query_state (&states)[STAGES][OTHERS],
                                                    barriers &bar) {
  const ot_attention_shape<float> &shape = f.shape;
  const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16, group_row = row / 64 * 64;
  const bool any_edge = shape.doc_start || shape.window > 0;
  float dkeys[D / 8][4] = {}, dvalues[D / 8][4] = {};
  ot_barrier_wait(&bar.own, 0);
  for (int n = 0; n < at.visits; n++) {
    wait_for_others(bar, n);
    if (at.query(n) + OTHERS > at.key + group_row) {  // else before the warpgroup's keys
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      uint32_t p_weights[OTHERS / 16][4], ds_weights[OTHERS / 16][4];
      multiply_pair(tiles, group_row, n, p, ds);
      const bool edge = any_edge || at.query(n) < at.key + group_row + 63;
      ot_turn_keys<true>(states[n % STAGES], shape.scale * OT_LOG2_E, at.key + row, edge, p, ds);
      ot_pack_weights(p[0], p_weights);
      ot_pack_weights(ds[0], ds_weights);
      ot_products_begin();
      ot_multiply_weights<OTHERS>(p_weights, tiles.second(n), dvalues);
      ot_multiply_weights<OTHERS>(ds_weights, tiles.first(n), dkeys);
      ot_products_end();
      ot_products_wait<0>();
      ot_products_hold(dvalues);
      ot_products_hold(dkeys);
    }
    ot_arrive_by_warp(&bar.read[n % STAGES]);
  }
  const int64_t step = qkv_step(shape, D);
  ot_bf16 *const to =
      f.dqkv + ((int64_t)at.b * shape.T + at.key) * step + (shape.H + at.g) * D;
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  store<D>(dkeys, shape.scale, tiles.own_first, row, to, step, shape.T - at.key);
  store<D>(dvalues, 1, tiles.own_second(), row, to + shape.G * D, step, shape.T - at.key);
}

// Blocks (sequence and key head, key tile).
template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    key_gradient_kernel(OT_GRID_CONSTANT maps m, backward f) {
  __shared__ barriers bar;
  __shared__ ot_query_state states[STAGES][OTHERS];
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, G = f.shape.G, key = (int)blockIdx.y * OWN;
  if (threadIdx.x == 0) init(bar, 1 + OTHERS);
  const int b = (int)blockIdx.x / G, end = key + OWN < T ? key + OWN : T;
  const ot_seen seers = ot_seers_of<false, OTHERS, THREADS>(f.shape, b, key, end);
  const int visited = (seers.high - seers.low + OTHERS - 1) / OTHERS;
  const key_part at = {b,         (int)blockIdx.x % G, key,
                       seers.low, visited,             visited * (f.shape.H / G)};
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_for_keys(m, f, at, tiles, bar);
    if (threadIdx.x >= OT_WARPGROUP - OTHERS) give_states(f, at, states, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    compute_keys(f, at, tiles, states, bar);
  }
}

// ---- queries ----

// Queries of a head and sequence, and the keys that they see: visit n has those from
// begin + n * OTHERS on.
struct query_part {
  int b, h, first, begin, visits;
};

// By one thread.
template <int D>
static __device__ __forceinline__ void copy_for_queries(const maps &m, const backward &f,
                                                        const query_part &at,
                                                        const tiles_of<D> &tiles, barriers &bar) {
  const int H = f.shape.H, G = f.shape.G, key_head = at.h / (H / G);
  copy_pair<D, OWN>(m.own, {at.h * D, at.h * D, at.first, at.b}, tiles.own_first, &bar.own);
  for (int n = 0; n < at.visits; n++) {
    wait_until_read(bar, n);
    copy_pair<D, OTHERS>(m.others,
                         {key_head * D, (key_head + G) * D, at.begin + n * OTHERS, at.b},
                         tiles.first(n), &bar.others[n % STAGES]);
  }
}

template <int D>
static __device__ __forceinline__ void compute_queries(const backward &f, const query_part &at,
                                                       const tiles_of<D> &tiles, barriers &bar) {
  const ot_attention_shape<float> &shape = f.shape;
  const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16, group_row = row / 64 * 64;
  ot_query_state states[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    states[half] = ot_query_state_of<false>(shape, f.rows, at.b, at.h,
                                            at.first + row + 8 * half + threadIdx.x % 32 / 4);
  }
  float dqueries[D / 8][4] = {};
  ot_barrier_wait(&bar.own, 0);
  for (int n = 0; n < at.visits; n++) {
    const int key = at.begin + n * OTHERS;
    wait_for_others(bar, n);
    if (key < at.first + group_row + 64) {  // else beyond the warpgroup's queries
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      uint32_t weights[OTHERS / 16][4];
      multiply_pair(tiles, group_row, n, p, ds);
      ot_turn_queries(states, shape.scale * OT_LOG2_E, key, p, ds);
      ot_pack_weights(ds[0], weights);
      ot_products_begin();
      ot_multiply_weights<OTHERS>(weights, tiles.first(n), dqueries);
      ot_products_end();
      ot_products_wait<0>();
      ot_products_hold(dqueries);
    }
    ot_arrive_by_warp(&bar.read[n % STAGES]);
  }
  const int64_t step = qkv_step(shape, D);
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  store<D>(dqueries, shape.scale, tiles.own_first, row,
           f.dqkv + ((int64_t)at.b * shape.T + at.first) * step + at.h * D, step,
           shape.T - at.first);
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    query_gradient_kernel(OT_GRID_CONSTANT maps m, backward f) {
  __shared__ barriers bar;
  __shared__ ot_seen rows[OWN];
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, H = f.shape.H, first = (int)(gridDim.y - 1 - blockIdx.y) * OWN;
  if (threadIdx.x == 0) init(bar, 1);
  const int b = (int)blockIdx.x / H, end = first + OWN < T ? first + OWN : T;
  const int least = ot_first_keys_of<false, OWN, THREADS>(f.shape, b, first, rows).least;
  const int begin = least / OTHERS * OTHERS;
  const query_part at = {b, (int)blockIdx.x % H, first, begin, (end - begin + OTHERS - 1) / OTHERS};
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_for_queries(m, f, at, tiles, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    compute_queries(f, at, tiles, bar);
  }
}

// The maps of tiles of `rows` rows of queries and output gradients, and of keys and values.
template <int D>
static bool encode_maps(const ot_kernel_call *call, int rows, ot_tensor_map (&queries)[2],
                        ot_tensor_map (&keys)[2]) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor_map_encode encode = ot_cuda_context_of(call)->encode;
  const int64_t T = a->sequence_length, B = call->in[1].type.dim[0] / T;
  const int64_t width = a->num_heads * D, key_width = 2 * a->num_kv_heads * D;
  const ot_bf16 *const qkv = (const ot_bf16 *)call->in[1].data;
  const ot_tiled_rows q = {qkv, B, T, width, width + key_width, rows, ot_panel_columns<D>};
  ot_tiled_rows doutput = q, kv = q;
  doutput.data = call->in[0].data;
  doutput.step = width;
  kv.data = qkv + width;
  kv.columns = key_width;
  if (!ot_tensor_map_of_rows(encode, &q, &queries[0]) ||
      !ot_tensor_map_of_rows(encode, &doutput, &queries[1]) ||
      !ot_tensor_map_of_rows(encode, &kv, &keys[0])) {
    return false;
  }
  keys[1] = keys[0];
  return true;
}

// False, without any work, if the driver refuses a map.
template <int D>
static bool run_backward(const ot_kernel_call *call, const backward &f) {
  const unsigned B = (unsigned)(call->in[1].type.dim[0] / f.shape.T);
  const unsigned tiles = ot_blocks(f.shape.T, OWN);
  void *const stream = ot_cuda_stream_of(call);
  constexpr int BYTES = tiles_of<D>::BYTES;
  maps by_key, by_query;
  if (!encode_maps<D>(call, OWN, by_query.own, by_key.own)) return false;
  if (!encode_maps<D>(call, OTHERS, by_key.others, by_query.others)) return false;
  ot_allow_shared(key_gradient_kernel<D>, BYTES);
  ot_allow_shared(query_gradient_kernel<D>, BYTES);
  OT_LAUNCH(key_gradient_kernel<D>, dim3(B * (unsigned)f.shape.G, tiles), THREADS, BYTES, stream,
            by_key, f);
  OT_LAUNCH(query_gradient_kernel<D>, dim3(B * (unsigned)f.shape.H, tiles), THREADS, BYTES, stream,
            by_query, f);
  return true;
}

}  // namespace

extern "C" bool ot_attention_grad_hopper(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &call->out[0]};
  if (!ot_cuda_context_of(call)->encode || a->head_dim > 128) return false;
  if (!ot_attention_fits_mma(a, tensors, 3, 0)) return false;
  const backward f = {ot_attention_shape_of<float>(a, &in[2]),
                      (ot_bf16 *)call->out[0].data,
                      {(const float *)in[5].data, delta}};
  switch (a->head_dim) {
    case 64:
      return run_backward<64>(call, f);
    case 96:
      return run_backward<96>(call, f);
    default:
      return run_backward<128>(call, f);
  }
}
