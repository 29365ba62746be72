// SPDX-License-Identifier: Apache-2.0
// Attention backward on Hopper in two kernels, as in attention_mma_grad.cu. A block owns two tiles
// of OWN rows, keys and values or queries and output gradients, a warpgroup 64 rows of both, and
// visits pairs of tiles of OTHERS rows of the other kind. One warpgroup copies, with TMA; the
// others compute. With heads of 256 the first kernel runs once for the values and once for the
// keys, whose sums do not fit into registers together.
#include "kernels/cuda/attention_gradient.cuh"
#include "kernels/cuda/attention_hopper.cuh"

extern "C" {
#include "kernels/cuda/attention_hopper.h"
}

namespace {

enum { GROUPS = 2, THREADS = OT_WARPGROUP * (1 + GROUPS), OWN = 64 * GROUPS };
enum { WARPS = 4 * GROUPS, STAGES = 2, COPY_REGISTERS = 24, COMPUTE_REGISTERS = 240 };
enum { VALUES = 1, KEYS = 2 };  // gradients

// A thread has 240 registers: D / 2 and V / 2 for sums and OTHERS / 2 for each of p and dp.
template <int D>
struct division {
  static constexpr int V = ot_value_dim<D>, OTHERS = D > 128 ? 48 : 64;
};

struct backward {
  ot_attention_shape<float> shape;
  void *dqueries, *dkeys;  // bf16; float32 of a ring. Gradients of values come G heads after keys
  const float *dqueries_before, *dkeys_before;  // what is added to them, or null
  int64_t dquery_step, dkey_step;               // elements between tokens
  ot_softmax_rows rows;
};

// Maps of the own and of the visited tiles: of the first kind, queries or keys, and of the second,
// output gradients or values.
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
  static constexpr int V = division<D>::V, OTHERS = division<D>::OTHERS;
  static constexpr int OWN_FIRST = ot_tile_bytes<D, OWN>,
                       OWN_BYTES = OWN_FIRST + ot_tile_bytes<V, OWN>;
  static constexpr int FIRST = ot_tile_bytes<D, OTHERS>, STAGE = FIRST + ot_tile_bytes<V, OTHERS>;
  static constexpr int BYTES = OWN_BYTES + STAGES * STAGE;
  unsigned char *own_first;

  __device__ unsigned char *own_second() const { return own_first + OWN_FIRST; }
  __device__ unsigned char *first(int n) const {
    return own_first + OWN_BYTES + n % STAGES * STAGE;
  }
  __device__ unsigned char *second(int n) const { return first(n) + FIRST; }
};

// Copies tiles of ROWS rows of both kinds. At: column of the first and the second, row, sequence.
struct copy_place {
  int first, second, row, sequence;
};

template <int D, int ROWS>
static __device__ __forceinline__ void copy_pair(const ot_tensor_map (&map)[2], copy_place at,
                                                 unsigned char *to, uint64_t *barrier) {
  constexpr int V = division<D>::V, FIRST = ot_tile_bytes<D, ROWS>;
  ot_barrier_expect(barrier, FIRST + ot_tile_bytes<V, ROWS>);
  ot_copy_head<D, ROWS>(to, map[0], at.first, at.row, at.sequence, barrier);
  ot_copy_head<V, ROWS>(to + FIRST, map[1], at.second, at.row, at.sequence, barrier);
}

// The scores and, with DP, dp of the warpgroup's rows with visit n.
template <bool DP, int D, int NT>
static __device__ __forceinline__ void multiply_pair(const tiles_of<D> &tiles, int row, int n,
                                                     float (&s)[1][NT][4], float (&dp)[1][NT][4]) {
  constexpr int V = division<D>::V, OTHERS = 8 * NT;
  ot_products_begin();
  ot_multiply_rows<D, OWN, OTHERS>(tiles.own_first, row, tiles.first(n), s[0]);
  if constexpr (DP) {
    ot_multiply_rows<V, OWN, OTHERS>(tiles.own_second(), row, tiles.second(n), dp[0]);
  }
  ot_products_end();
  ot_products_wait<0>();
  ot_products_hold(s[0]);
  if constexpr (DP) ot_products_hold(dp[0]);
}

// factor * sums of the warp's rows, by way of a tile that its warpgroup has read.
template <int D, bool RING, int NT>
static __device__ __forceinline__ void store(const float (&sums)[1][NT][4], float factor,
                                             unsigned char *tile, int row, const ot_result &to) {
  const float factors[1][2] = {{factor, factor}}, one[1][2] = {{1, 1}};
  ot_store_result<D, OWN, RING>(sums, factors, one, tile, row, to);
}

// ---- keys and values ----

// Keys of a head and sequence, and the queries that see them: visit n is tile n % tiles of query
// head n / tiles of the group.
template <int OTHERS>
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
                                                     const key_part<division<D>::OTHERS> &at,
                                                     const tiles_of<D> &tiles, barriers &bar) {
  constexpr int OTHERS = division<D>::OTHERS;
  copy_pair<D, OWN>(m.own, {at.g * D, (at.g + f.shape.G) * D, at.key, at.b}, tiles.own_first,
                    &bar.own);
  for (int n = 0; n < at.visits; n++) {
    const int column = at.head(f.shape, n) * D;
    wait_until_read(bar, n);
    copy_pair<D, OTHERS>(m.others, {column, column, at.query(n), at.b}, tiles.first(n),
                         &bar.others[n % STAGES]);
  }
}

// By the last OTHERS threads of the warpgroup: one query of each visit.
template <bool RING, int OTHERS>
static __device__ __forceinline__ void store_states(const backward &f, const key_part<OTHERS> &at,
                                                   ot_query_state (&states)[STAGES][OTHERS],
                                                   barriers &bar) {
  const int i = (int)threadIdx.x - (OT_WARPGROUP - OTHERS);
  for (int n = 0; n < at.visits; n++) {
    const ot_query_state state =
        ot_query_state_of<RING>(f.shape, f.rows, at.b, at.head(f.shape, n), at.query(n) + i);
    wait_until_read(bar, n);
    states[n % STAGES][i] = state;
    ot_barrier_arrive(&bar.others[n % STAGES]);
  }
}

template <int D, bool RING, int WHICH, int OTHERS>
static __device__ __forceinline__ void compute_keys(const backward &f, const key_part<OTHERS> &at,
                                                    const tiles_of<D> &tiles,
                                                    const ot_query_state (&states)[STAGES][OTHERS],
                                                    barriers &bar) {
  constexpr int V = division<D>::V;
  constexpr bool DK = (WHICH & KEYS) != 0, DV = (WHICH & VALUES) != 0;
  const ot_attention_shape<float> &shape = f.shape;
  const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16, group_row = row / 64 * 64;
  const int key = at.key + group_row;  // the warpgroup's first one
  const bool any_edge = shape.doc_start || shape.window > 0;
  float dkeys[1][DK ? D / 8 : 1][4] = {}, dvalues[1][DV ? V / 8 : 1][4] = {};
  ot_barrier_wait(&bar.own, 0);
  for (int n = 0; n < at.visits; n++) {
    const int query = at.query(n);
    wait_for_others(bar, n);
    if (ot_end_key<RING>(shape, query + OTHERS - 1) > key) {  // else before the warpgroup's keys
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      uint32_t p_weights[OTHERS / 16][4], ds_weights[OTHERS / 16][4];
      multiply_pair<DK>(tiles, group_row, n, p, ds);
      const bool edge = any_edge || ot_end_key<RING>(shape, query) < key + 64;
      ot_turn_keys<DK>(states[n % STAGES], shape.scale * OT_LOG2_E, at.key + row, edge, p, ds);
      if constexpr (DV) ot_pack_weights(p[0], p_weights);
      if constexpr (DK) ot_pack_weights(ds[0], ds_weights);
      ot_products_begin();
      if constexpr (DV) ot_multiply_weights<OTHERS>(p_weights, tiles.second(n), dvalues[0]);
      if constexpr (DK) ot_multiply_weights<OTHERS>(ds_weights, tiles.first(n), dkeys[0]);
      ot_products_end();
      ot_products_wait<0>();
      if constexpr (DV) ot_products_hold(dvalues[0]);
      if constexpr (DK) ot_products_hold(dkeys[0]);
    }
    ot_arrive_by_warp(&bar.read[n % STAGES]);
  }
  const int64_t first = ((int64_t)at.b * shape.T + at.key) * f.dkey_step + at.g * D;
  ot_result to = {f.dkeys, f.dkeys_before, first, f.dkey_step, shape.T - at.key};
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  if constexpr (DK) store<D, RING>(dkeys, shape.scale, tiles.own_first, row, to);
  to.first += shape.G * D;
  if constexpr (DV) store<D, RING>(dvalues, 1, tiles.own_second(), row, to);
}

// Blocks (sequence and key head, key tile). WHICH gradients.
template <int D, bool RING, int WHICH>
static __global__ void __launch_bounds__(THREADS, 1)
    hopper_key_gradient_kernel(OT_GRID_CONSTANT maps m, backward f) {
  constexpr int OTHERS = division<D>::OTHERS;
  __shared__ barriers bar;
  __shared__ ot_query_state states[STAGES][OTHERS];
  static_assert(ot_fits_hopper<tiles_of<D>::BYTES, sizeof bar + sizeof states + THREADS / 8>,
                "the tiles are too large");
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, G = f.shape.G, key = (int)blockIdx.y * OWN;
  if (threadIdx.x == 0) init(bar, 1 + OTHERS);
  const int b = (int)blockIdx.x / G, end = key + OWN < T ? key + OWN : T;
  const ot_seen seers = ot_seers_of<RING, OTHERS, THREADS>(f.shape, b, key, end);
  const int visited = (seers.high - seers.low + OTHERS - 1) / OTHERS;
  const key_part<OTHERS> at = {b,       (int)blockIdx.x % G,      key, seers.low,
                               visited, visited * (f.shape.H / G)};
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_for_keys(m, f, at, tiles, bar);
    if (threadIdx.x >= OT_WARPGROUP - OTHERS) store_states<RING>(f, at, states, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    compute_keys<D, RING, WHICH>(f, at, tiles, states, bar);
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
  constexpr int OTHERS = division<D>::OTHERS;
  const int H = f.shape.H, G = f.shape.G, key_head = at.h / (H / G);
  copy_pair<D, OWN>(m.own, {at.h * D, at.h * D, at.first, at.b}, tiles.own_first, &bar.own);
  for (int n = 0; n < at.visits; n++) {
    wait_until_read(bar, n);
    copy_pair<D, OTHERS>(m.others, {key_head * D, (key_head + G) * D, at.begin + n * OTHERS, at.b},
                         tiles.first(n), &bar.others[n % STAGES]);
  }
}

template <int D, bool RING>
static __device__ __forceinline__ void compute_queries(const backward &f, const query_part &at,
                                                       const tiles_of<D> &tiles, barriers &bar) {
  constexpr int OTHERS = division<D>::OTHERS;
  const ot_attention_shape<float> &shape = f.shape;
  const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16, group_row = row / 64 * 64;
  const int group_end = ot_end_key<RING>(shape, at.first + group_row + 63);
  ot_query_state states[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    states[half] = ot_query_state_of<RING>(shape, f.rows, at.b, at.h,
                                           at.first + row + 8 * half + threadIdx.x % 32 / 4);
  }
  float dqueries[1][D / 8][4] = {};
  ot_barrier_wait(&bar.own, 0);
  for (int n = 0; n < at.visits; n++) {
    const int key = at.begin + n * OTHERS;
    wait_for_others(bar, n);
    if (key < group_end) {  // else beyond the warpgroup's queries
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      uint32_t weights[OTHERS / 16][4];
      multiply_pair<true>(tiles, group_row, n, p, ds);
      ot_turn_queries(states, shape.scale * OT_LOG2_E, key, p, ds);
      ot_pack_weights(ds[0], weights);
      ot_products_begin();
      ot_multiply_weights<OTHERS>(weights, tiles.first(n), dqueries[0]);
      ot_products_end();
      ot_products_wait<0>();
      ot_products_hold(dqueries[0]);
    }
    ot_arrive_by_warp(&bar.read[n % STAGES]);
  }
  const int64_t first = ((int64_t)at.b * shape.T + at.first) * f.dquery_step + at.h * D;
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  store<D, RING>(dqueries, shape.scale, tiles.own_first, row,
                 {f.dqueries, f.dqueries_before, first, f.dquery_step, shape.T - at.first});
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D, bool RING>
static __global__ void __launch_bounds__(THREADS, 1)
    hopper_query_gradient_kernel(OT_GRID_CONSTANT maps m, backward f) {
  constexpr int OTHERS = division<D>::OTHERS;
  __shared__ barriers bar;
  __shared__ ot_seen rows[OWN];
  static_assert(ot_fits_hopper<tiles_of<D>::BYTES, sizeof bar + sizeof rows + THREADS / 8>,
                "the tiles are too large");
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, H = f.shape.H, first = (int)(gridDim.y - 1 - blockIdx.y) * OWN;
  if (threadIdx.x == 0) init(bar, 1);
  const int b = (int)blockIdx.x / H, last = (first + OWN < T ? first + OWN : T) - 1;
  const int least = ot_first_keys_of<RING, OWN, THREADS>(f.shape, b, first, rows).least;
  const int end = ot_end_key<RING>(f.shape, last);
  const int begin = (least < end ? least : end) / OTHERS * OTHERS;
  const query_part at = {b, (int)blockIdx.x % H, first, begin, (end - begin + OTHERS - 1) / OTHERS};
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_for_queries(m, f, at, tiles, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    compute_queries<D, RING>(f, at, tiles, bar);
  }
}

// ---- calls ----

// Queries and their output gradients, keys and values.
struct operands {
  ot_head_rows queries, doutput, keys;
};

// The maps of tiles of `rows` rows of queries and output gradients, and of keys and values.
template <int D>
static bool encode_maps(const ot_kernel_call *call, int64_t T, const operands &from, int rows,
                        ot_tensor_map (&queries)[2], ot_tensor_map (&keys)[2]) {
  const int64_t R = call->in[1].type.dim[0];
  if (!ot_map_heads<D>(call, R, T, from.queries, rows, &queries[0]) ||
      !ot_map_heads<D>(call, R, T, from.doutput, rows, &queries[1]) ||
      !ot_map_heads<D>(call, R, T, from.keys, rows, &keys[0])) {
    return false;
  }
  keys[1] = keys[0];
  return true;
}

// False, without any work, if the driver refuses a map or the shared memory.
template <int D, bool RING>
static bool run_backward(const ot_kernel_call *call, const backward &f, const operands &from) {
  constexpr int FIRST = D > 192 ? VALUES : VALUES | KEYS, REST = D > 192 ? KEYS : FIRST;
  constexpr int BYTES = tiles_of<D>::BYTES, OTHERS = division<D>::OTHERS;
  void *const stream = ot_cuda_stream_of(call);
  const int T = f.shape.T;
  const unsigned B = (unsigned)(call->in[1].type.dim[0] / T);
  const dim3 grid(B * (unsigned)f.shape.G, ot_blocks(T, OWN));
  maps by_key, by_query;
  if (!encode_maps<D>(call, T, from, OWN, by_query.own, by_key.own) ||
      !encode_maps<D>(call, T, from, OTHERS, by_key.others, by_query.others) ||
      !ot_allow_shared(hopper_key_gradient_kernel<D, RING, FIRST>, BYTES) ||
      !ot_allow_shared(hopper_key_gradient_kernel<D, RING, REST>, BYTES) ||
      !ot_allow_shared(hopper_query_gradient_kernel<D, RING>, BYTES)) {
    return false;
  }
  OT_LAUNCH((hopper_key_gradient_kernel<D, RING, FIRST>), grid, THREADS, BYTES, stream, by_key, f);
  if constexpr (REST != FIRST) {
    OT_LAUNCH((hopper_key_gradient_kernel<D, RING, REST>), grid, THREADS, BYTES, stream, by_key, f);
  }
  OT_LAUNCH((hopper_query_gradient_kernel<D, RING>), dim3(B * (unsigned)f.shape.H, grid.y), THREADS,
            BYTES, stream, by_query, f);
  return true;
}

}  // namespace

extern "C" bool ot_attention_grad_hopper(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &out[0]};
  if (!ot_cuda_context_of(call)->encode || !ot_attention_fits_mma(a, tensors, 3, 0)) return false;
  const int64_t D = a->head_dim, width = a->num_heads * D, key_width = 2 * a->num_kv_heads * D;
  const operands from = {{in[1].data, width, width + key_width},
                         {in[0].data, width, width},
                         {(const ot_bf16 *)in[1].data + width, key_width, width + key_width}};
  backward f = {};
  f.shape = ot_attention_shape_of<float>(a, &in[2]);
  f.dqueries = out[0].data;
  f.dkeys = (ot_bf16 *)out[0].data + width;
  f.dquery_step = f.dkey_step = width + key_width;
  f.rows = {(const float *)in[5].data, delta};
  bool done = false;
  ot_for_mma_head_dim(
      D, [&](auto d) { done = run_backward<decltype(d)::value, false>(call, f, from); });
  return done;
}

extern "C" bool ot_attention_block_grad_hopper(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &in[2], &in[7], &in[8], &out[0], &out[1]};
  if (!ot_cuda_context_of(call)->encode) return false;
  if (!ot_attention_fits_mma(a, tensors, 7, 0xfu << 3)) return false;
  const int64_t D = a->head_dim, width = a->num_heads * D, key_width = 2 * a->num_kv_heads * D;
  const operands from = {{in[1].data, width, width + key_width},
                         {in[0].data, width, width},
                         {in[2].data, key_width, key_width}};
  backward f = {};
  f.shape = ot_attention_block_shape_of<float>(a, &in[3]);
  f.dqueries = out[0].data;
  f.dkeys = out[1].data;
  f.dqueries_before = (const float *)in[7].data;
  f.dkeys_before = (const float *)in[8].data;
  f.dquery_step = width;
  f.dkey_step = key_width;
  f.rows = {(const float *)in[6].data, delta};
  bool done = false;
  ot_for_mma_head_dim(
      D, [&](auto d) { done = run_backward<decltype(d)::value, true>(call, f, from); });
  return done;
}
