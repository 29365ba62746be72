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

enum { GROUPS = 2, THREADS = OT_WARPGROUP * (1 + GROUPS), QUERIES = 64 * GROUPS, KEYS = 128 };
enum { WARPS = 4 * GROUPS, COPY_REGISTERS = 24, COMPUTE_REGISTERS = 240 };

template <int D>
struct division {
  static constexpr int V = ot_value_dim<D>, STAGES = D > 64 ? 2 : 4;
  static constexpr int KEY_TILE = ot_tile_bytes<D, KEYS>, VALUE_TILE = ot_tile_bytes<V, KEYS>;
  static constexpr int BYTES = ot_tile_bytes<D, QUERIES> + STAGES * (KEY_TILE + VALUE_TILE);
};

// Tiles of queries of a head, and of keys and values; values come G heads after keys.
struct maps {
  ot_tensor_map queries, keys;
};

struct forward {
  ot_attention_shape<float> shape;
  ot_bf16 *o;
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
  constexpr int STAGES = t::STAGES;
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

// What a warp knows of its rows; `rows`: what they see.
struct own_rows {
  int row;
  const ot_seen *rows;
  ot_first_keys seen;
};

// Scores of the keys from `key` on to weights.
static __device__ __forceinline__ void soften(const forward &f, const own_rows &own, int key,
                                              ot_running<1> &state, float (&s)[1][KEYS / 8][4],
                                              float (&factor)[2]) {
  if (key < own.seen.largest || key + KEYS > own.rows[own.row].high) {
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
  constexpr int STAGES = division<D>::STAGES;
  const int group_row = own.row / 64 * 64;
  float s[1][KEYS / 8][4], factor[2];
  uint32_t weights[KEYS / 16][4];
  ot_barrier_wait(&bar.queries, 0);
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

template <int D>
static __device__ __forceinline__ void store(const forward &f, part at, int row,
                                             tiles_of<D> tiles, const ot_running<1> &state,
                                             const float (&output)[division<D>::V / 8][4]) {
  constexpr int V = division<D>::V;
  const int T = f.shape.T, H = f.shape.H;
  const int64_t token = (int64_t)at.b * T + at.first;
  float factor[1][2], weight[1][2];
  ot_finish(f.shape, f.ends, at.first + row, state, factor, weight);
  // The warpgroup has read its queries.
  ot_named_barrier(1 + row / 64, OT_WARPGROUP);
  ot_bf16 *const to = f.o + (token * H + at.h) * D;
  ot_store_panels<V, QUERIES>(output, factor[0], tiles.queries, row, to, (int64_t)H * D,
                              T - at.first);
  ot_store_zeros<D, V, 1>(row, to, (int64_t)H * D, T - at.first);
  if (!f.maxima || at.first + row >= T) return;
  const float largest = ot_warp_max(fmaxf(state.largest[0][0], state.largest[0][1]));
  const int64_t i = (int64_t)blockIdx.x * ((T + 15) / 16) + (at.first + row) / 16;
  if (threadIdx.x % 32 == 0) f.maxima[i] = (double)(f.shape.scale * largest);
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    forward_kernel(OT_GRID_CONSTANT maps m, forward f) {
  __shared__ barriers<division<D>::STAGES> bar;
  __shared__ ot_seen rows[QUERIES];
  OT_SWIZZLED_SHARED(shared);
  const tiles_of<D> tiles = {shared};
  const int T = f.shape.T, H = f.shape.H;
  part at = {(int)blockIdx.x / H, (int)blockIdx.x % H,
             (int)(gridDim.y - 1 - blockIdx.y) * QUERIES, 0, 0};
  if (threadIdx.x == 0) init(bar);
  const ot_first_keys seen =
      ot_first_keys_of<false, QUERIES, THREADS>(f.shape, at.b, at.first, rows);
  const int end = at.first + QUERIES < T ? at.first + QUERIES : T;
  at.begin = seen.least / KEYS * KEYS;
  at.tiles = (end - at.begin + KEYS - 1) / KEYS;
  __syncthreads();
  if (threadIdx.x < OT_WARPGROUP) {
    ot_fewer_registers<COPY_REGISTERS>();
    if (threadIdx.x == 0) copy_tiles<D>(m, f, at, tiles, bar);
  } else {
    ot_more_registers<COMPUTE_REGISTERS>();
    const int row = ((int)threadIdx.x - OT_WARPGROUP) / 32 * 16;
    ot_running<1> state = {{{-INFINITY, -INFINITY}}, {{0, 0}}};
    float output[division<D>::V / 8][4] = {};
    compute<D>(f, at, {row, rows, seen}, tiles, bar, state, output);
    store<D>(f, at, row, tiles, state, output);
  }
}

// Returns the number of blocks; 0 if the driver refuses a map.
template <int D>
static int64_t run_forward(const ot_kernel_call *call, const forward &f) {
  const ot_tensor_map_encode encode = ot_cuda_context_of(call)->encode;
  const ot_attention_shape<float> &shape = f.shape;
  const int64_t B = call->in[0].type.dim[0] / shape.T, step = call->in[0].type.dim[1];
  ot_tiled_rows rows = {call->in[0].data, B, shape.T, shape.H * D, step, QUERIES,
                        ot_panel_columns<D>};
  maps m;
  if (!ot_tensor_map_of_rows(encode, &rows, &m.queries)) return 0;
  rows.data = (const ot_bf16 *)rows.data + shape.H * D;
  rows.columns = 2 * shape.G * D;
  rows.tile_rows = KEYS;
  if (!ot_tensor_map_of_rows(encode, &rows, &m.keys)) return 0;
  const dim3 grid((unsigned)(B * shape.H), ot_blocks(shape.T, QUERIES));
  ot_allow_shared(forward_kernel<D>, division<D>::BYTES);
  OT_LAUNCH(forward_kernel<D>, grid, THREADS, division<D>::BYTES, ot_cuda_stream_of(call), m, f);
  return (int64_t)grid.x * ((shape.T + 15) / 16);
}

}  // namespace

extern "C" bool ot_attention_hopper(const ot_kernel_call *call, double *maxima, int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &out[0]};
  if (!ot_cuda_context_of(call)->encode || a->head_dim == 256) return false;
  if (!ot_attention_fits_mma(a, tensors, 2, 0)) return false;
  const forward f = {ot_attention_shape_of<float>(a, &in[1]),
                     (ot_bf16 *)out[0].data,
                     {(float *)out[1].data, nullptr, ot_any_of<float>(&in[3]), (int)a->first_sink},
                     maxima};
  switch (a->head_dim) {
    case 64:
      *blocks = run_forward<64>(call, f);
      break;
    case 96:
      *blocks = run_forward<96>(call, f);
      break;
    case 128:
      *blocks = run_forward<128>(call, f);
      break;
    default:
      *blocks = run_forward<192>(call, f);
  }
  return *blocks > 0;
}
