// SPDX-License-Identifier: Apache-2.0
// Attention forward on Hopper (Shah et al. 2024, FlashAttention-3): one thread copies tiles of keys
// and values ahead, two warpgroups compute 64 queries each. A warpgroup starts the scores of the
// next tile before it adds the values of this one, so that its softmax runs meanwhile.
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/attention_softmax.cuh"

extern "C" {
#include "kernels/cuda/attention_hopper.h"
}

namespace {

enum { GROUPS = 2, THREADS = OT_WARPGROUP * (1 + GROUPS), QUERIES = 64 * GROUPS };
enum { WARPS = 4 * GROUPS, COPY_REGISTERS = 24, COMPUTE_REGISTERS = 240 };

// A thread has 240 registers: D / 2 for the output, KEYS / 2 for scores and KEYS / 4 for
// weights.
template <int D>
struct division {
  static constexpr int V = ot_value_dim<D>, KEYS = D > 192 ? 64 : 128, STAGES = D > 64 ? 2 : 4;
  static constexpr int KEY_TILE = ot_tile_bytes<D, KEYS>, VALUE_TILE = ot_tile_bytes<V, KEYS>;
  static constexpr int BYTES = ot_tile_bytes<D, QUERIES> + STAGES * (KEY_TILE + VALUE_TILE);
};

// Tiles of queries of a head, and of keys and values; values come G heads after keys.
struct maps {
  ot_tensor_map queries, keys;
};

struct forward {
  ot_attention_shape<float> shape;
  void *o;                // bf16; float32 of a ring
  const float *o_before;  // of other blocks of keys, or null
  ot_softmax_ends ends;
  double *maxima;  // [B, H, T / 16 rounded up] or null
};

// Tiles of a stage have landed, and have been read by all warps that compute.
template <int STAGES>
struct barriers {
  uint64_t queries, keys[STAGES], values[STAGES], keys_read[STAGES], values_read[STAGES];
};

template <int STAGES>
static __device__ __forceinline__ void init(barriers<STAGES> &at) {
  ot_barrier_init(&at.queries, 1);
  for (int i = 0; i < STAGES; i++) {
    ot_barrier_init(&at.keys[i], 1);
    ot_barrier_init(&at.values[i], 1);
    ot_barrier_init(&at.keys_read[i], WARPS);
    ot_barrier_init(&at.values_read[i], WARPS);
  }
  ot_barrier_fence();
}

// The part of a block: a tile of queries of a head, and its tiles of keys.
struct part {
  int b, h, first, begin, tiles;
};

// The tiles in shared memory.
template <int D>
struct tiles_of {
  unsigned char *queries;

  __device__ unsigned char *keys(int n) const {
    using t = division<D>;
    return queries + ot_tile_bytes<D, QUERIES> + n % t::STAGES * (t::KEY_TILE + t::VALUE_TILE);
  }
  __device__ unsigned char *values(int n) const { return keys(n) + division<D>::KEY_TILE; }
};

// By one thread.
template <int D>
static __device__ __forceinline__ void copy_tiles(const maps &m, const forward &f, part at,
                                                  tiles_of<D> tiles,
                                                  barriers<division<D>::STAGES> &bar) {
  using t = division<D>;
  constexpr int STAGES = t::STAGES, KEYS = t::KEYS;
  const int H = f.shape.H, G = f.shape.G, key_head = at.h / (H / G);
  ot_barrier_expect(&bar.queries, ot_tile_bytes<D, QUERIES>);
  ot_copy_head<D, QUERIES>(tiles.queries, m.queries, at.h * D, at.first, at.b, &bar.queries);
  for (int n = 0; n < at.tiles; n++) {
    const int stage = n % STAGES, key = at.begin + n * KEYS, before = (n / STAGES + 1) & 1;
    if (n >= STAGES) ot_barrier_wait(&bar.keys_read[stage], before);
    ot_barrier_expect(&bar.keys[stage], t::KEY_TILE);
    ot_copy_head<D, KEYS>(tiles.keys(n), m.keys, key_head * D, key, at.b, &bar.keys[stage]);
    if (n >= STAGES) ot_barrier_wait(&bar.values_read[stage], before);
    ot_barrier_expect(&bar.values[stage], t::VALUE_TILE);
    ot_copy_head<t::V, KEYS>(tiles.values(n), m.keys, (key_head + G) * D, key, at.b,
                             &bar.values[stage]);
  }
}

template <int NT>
static __device__ __forceinline__ void rescale(const float (&factor)[2], float (&output)[NT][4]) {
#pragma unroll
  for (int d = 0; d < NT; d++) {
#pragma unroll
    for (int k = 0; k < 4; k++) output[d][k] *= factor[k / 2];
  }
}

// The rows of a warp; `rows`: the range of keys that each sees.
struct own_rows {
  int row;
  const ot_seen *rows;
  ot_first_keys seen;
};

// Scores of the keys from `key` on to weights.
template <int NT>
static __device__ __forceinline__ void soften(const forward &f, const own_rows &own, int key,
                                              ot_running<1> &state, float (&s)[1][NT][4],
                                              float (&factor)[2]) {
  if (key < own.seen.largest || key + 8 * NT > own.rows[own.row].high) {
    ot_mask(own.rows + own.row, key, s);
  }
  ot_exponentiate(f.shape.scale * OT_LOG2_E, state, s,
                  [&](int, int half, float x) { factor[half] = x; });
}

// The output of the warp's queries, before its division by the sum.
template <int D>
static __device__ __forceinline__ void compute(const forward &f, part at, const own_rows &own,
                                               tiles_of<D> tiles,
                                               barriers<division<D>::STAGES> &bar,
                                               ot_running<1> &state,
                                               float (&output)[division<D>::V / 8][4]) {
  constexpr int STAGES = division<D>::STAGES, KEYS = division<D>::KEYS;
  const int group_row = own.row / 64 * 64;
  float s[1][KEYS / 8][4], factor[2];
  uint32_t weights[KEYS / 16][4];
  ot_barrier_wait(&bar.queries, 0);
  if (at.tiles == 0) return;  // of a ring
  ot_barrier_wait(&bar.keys[0], 0);
  ot_products_begin();
  ot_multiply_rows<D, QUERIES, KEYS>(tiles.queries, group_row, tiles.keys(0), s[0]);
  ot_products_end();
  ot_products_wait<0>();
  ot_products_hold(s[0]);
  ot_arrive_by_warp(&bar.keys_read[0]);
  soften(f, own, at.begin, state, s, factor);
  ot_pack_weights(s[0], weights);
  for (int n = 1; n < at.tiles; n++) {
    const int last = (n - 1) % STAGES, stage = n % STAGES;
    ot_barrier_wait(&bar.keys[stage], n / STAGES & 1);
    ot_products_begin();
    ot_multiply_rows<D, QUERIES, KEYS>(tiles.queries, group_row, tiles.keys(n), s[0]);
    ot_products_end();
    ot_barrier_wait(&bar.values[last], (n - 1) / STAGES & 1);
    ot_products_begin();
    ot_multiply_weights<KEYS>(weights, tiles.values(n - 1), output);
    ot_products_end();
    ot_products_wait<1>();
    ot_products_hold(s[0]);
    ot_arrive_by_warp(&bar.keys_read[stage]);
    soften(f, own, at.begin + n * KEYS, state, s, factor);
    ot_products_wait<0>();
    ot_products_hold(output);
    ot_arrive_by_warp(&bar.values_read[last]);
    rescale(factor, output);
    ot_pack_weights(s[0], weights);
  }
  const int last = at.tiles - 1;
  ot_barrier_wait(&bar.values[last % STAGES], last / STAGES & 1);
  ot_products_begin();
  ot_multiply_weights<KEYS>(weights, tiles.values(last), output);
  ot_products_end();
  ot_products_wait<0>();
  ot_products_hold(output);
}

template <int D, bool RING>
static __device__ __forceinline__ void store(const forward &f, part at, int row, tiles_of<D> tiles,
                                             const ot_running<1> &state,
                                             const float (&output)[1][division<D>::V / 8][4]) {
  const int T = f.shape.T, H = f.shape.H;
  const int64_t token = (int64_t)at.b * T + at.first;
  float factor[1][2], weight[1][2];
  ot_finish(f.shape, f.ends, at.first + row, state, factor, weight);
  // The warpgroup has read its queries.
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  const ot_result to = {f.o, f.o_before, (token * H + at.h) * D, (int64_t)H * D, T - at.first};
  ot_store_result<D, QUERIES, RING>(output, factor, weight, tiles.queries, row, to);
  if (!f.maxima || at.first + row >= T) return;
  const float largest = ot_warp_max(fmaxf(state.largest[0][0], state.largest[0][1]));
  const int64_t i = (int64_t)blockIdx.x * ((T + 15) / 16) + (at.first + row) / 16;
  if (threadIdx.x % 32 == 0) f.maxima[i] = (double)(f.shape.scale * largest);
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D, bool RING>
static __global__ void __launch_bounds__(THREADS, 1)
    hopper_forward_kernel(OT_GRID_CONSTANT maps m, forward f) {
  using t = division<D>;
  __shared__ barriers<t::STAGES> bar;
  __shared__ ot_seen rows[QUERIES];
  static_assert(ot_fits_hopper<t::BYTES, sizeof bar + sizeof rows + THREADS / 8>,
                "the tiles are too large");
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, H = f.shape.H;
  part at = {(int)blockIdx.x / H, (int)blockIdx.x % H, (int)(gridDim.y - 1 - blockIdx.y) * QUERIES,
             0, 0};
  if (threadIdx.x == 0) init(bar);
  const ot_first_keys seen =
      ot_first_keys_of<RING, QUERIES, THREADS>(f.shape, at.b, at.first, rows);
  const int last = (at.first + QUERIES < T ? at.first + QUERIES : T) - 1;
  const int end = ot_end_key<RING>(f.shape, last);
  at.begin = (seen.least < end ? seen.least : end) / t::KEYS * t::KEYS;
  at.tiles = (end - at.begin + t::KEYS - 1) / t::KEYS;
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_tiles<D>(m, f, at, tiles, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16;
    ot_running<1> state = {{{-INFINITY, -INFINITY}}, {{0, 0}}};
    float output[1][t::V / 8][4] = {};
    compute<D>(f, at, {row, rows, seen}, tiles, bar, state, output[0]);
    store<D, RING>(f, at, row, tiles, state, output);
  }
}

// Returns the number of blocks; 0 if the driver refuses a map or the shared memory.
template <int D, bool RING>
static int64_t run_forward(const ot_kernel_call *call, const forward &f,
                           const ot_head_rows &queries, const ot_head_rows &keys) {
  using t = division<D>;
  const int64_t R = call->in[0].type.dim[0], T = f.shape.T;
  maps m;
  if (!ot_map_heads<D>(call, R, T, queries, QUERIES, &m.queries)) return 0;
  if (!ot_map_heads<D>(call, R, T, keys, t::KEYS, &m.keys)) return 0;
  const dim3 grid((unsigned)(R / T * f.shape.H), ot_blocks(T, QUERIES));
  if (!ot_allow_shared(hopper_forward_kernel<D, RING>, t::BYTES)) return 0;
  OT_LAUNCH((hopper_forward_kernel<D, RING>), grid, THREADS, t::BYTES, ot_cuda_stream_of(call), m,
            f);
  return (int64_t)grid.x * ((T + 15) / 16);
}

}  // namespace

extern "C" bool ot_attention_hopper(const ot_kernel_call *call, double *maxima, int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &out[0]};
  if (!ot_cuda_context_of(call)->encode || !ot_attention_fits_mma(a, tensors, 2, 0)) return false;
  const int64_t D = a->head_dim, width = a->num_heads * D, key_width = 2 * a->num_kv_heads * D;
  const ot_head_rows queries = {in[0].data, width, width + key_width};
  const ot_head_rows keys = {(const ot_bf16 *)in[0].data + width, key_width, width + key_width};
  const forward f = {ot_attention_shape_of<float>(a, &in[1]),
                     out[0].data,
                     nullptr,
                     {(float *)out[1].data, nullptr, ot_any_of<float>(&in[3]), (int)a->first_sink},
                     maxima};
  ot_for_mma_head_dim(
      D, [&](auto d) { *blocks = run_forward<decltype(d)::value, false>(call, f, queries, keys); });
  return *blocks > 0;
}

extern "C" bool ot_attention_block_hopper(const ot_kernel_call *call, double *maxima,
                                          int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &in[4], &out[0]};
  if (!ot_cuda_context_of(call)->encode) return false;
  if (!ot_attention_fits_mma(a, tensors, 4, 1u << 2 | 1u << 3)) return false;
  const int64_t D = a->head_dim, width = a->num_heads * D, key_width = 2 * a->num_kv_heads * D;
  const ot_head_rows queries = {in[0].data, width, width + key_width};
  const ot_head_rows keys = {in[1].data, key_width, key_width};
  const forward f = {ot_attention_block_shape_of<float>(a, &in[2]),
                     out[0].data,
                     (const float *)in[4].data,
                     {(float *)out[1].data, (const float *)in[5].data, ot_any_of<float>(&in[6]),
                      (int)a->first_sink},
                     maxima};
  ot_for_mma_head_dim(
      D, [&](auto d) { *blocks = run_forward<decltype(d)::value, true>(call, f, queries, keys); });
  return *blocks > 0;
}
