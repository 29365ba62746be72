// SPDX-License-Identifier: Apache-2.0
// Attention backward on tensor cores, in two kernels as in attention_grad.cu. A block of the first
// has keys as rows of its products, so that p and ds, transposed, go from the registers of one
// product into those of the next; beyond head dim 128 it runs once for the values and once for the
// keys, whose sums do not fit into registers together. A block of the second has queries as rows.
// The tiles that a block visits are copied into two stages in turn.
#include "kernels/cuda/attention_gradient.cuh"

extern "C" {
#include "kernels/cuda/attention_mma.h"
}

namespace {

enum { WARPS = 8, THREADS = 32 * WARPS, OWN = 16 * WARPS };
enum { VALUES = 1, KEYS = 2 };  // gradients

// A block owns OWN rows and visits tiles of OTHERS rows, PART of them at once, so that registers
// suffice.
template <int D>
struct division {
  static constexpr int V = ot_value_dim<D>, OTHERS = D > 192 ? 32 : 64, PART = D > 64 ? 32 : 64;
};

struct backward {
  ot_attention_shape<float> shape;
  // The first head of each; values come G heads after keys. Steps: elements between tokens.
  const ot_bf16 *queries, *keys, *doutput;
  int64_t query_step, key_step;
  void *dqueries, *dkeys;  // bf16; float32 of a ring
  int64_t dquery_step, dkey_step;
  const float *dqueries_before, *dkeys_before;  // what is added to them, or null
  ot_softmax_rows rows;
};

// factor * sums, COLUMNS of D, to rows of a gradient from element `to` on, of which the block has
// n, and zeros to the columns beyond V; by way of the warp's rows of `tile` [rows, D].
template <int D, int COLUMNS, bool RING, int DT>
static __device__ __forceinline__ void store_gradient(const float (&sums)[1][DT][4], float factor,
                                                      ot_bf16 *tile, void *gradient,
                                                      const float *before, int64_t to, int64_t step,
                                                      int n) {
  const int row = threadIdx.x / 32 * 16;
  const float factors[1][2] = {{factor, factor}}, one[1][2] = {{1, 1}};
  if (RING) {
    float *const rows = (float *)gradient + to;
    ot_store_wide<COLUMNS>(sums, factors, one, before ? before + to : nullptr, row, rows, step, n);
    ot_store_zeros<D, COLUMNS, 1>(row, rows, step, n);
  } else {
    ot_bf16 *const rows = (ot_bf16 *)gradient + to;
    ot_store_sums<COLUMNS>(sums, factors, tile + row * (D - COLUMNS), row, rows, step, n);
    ot_store_zeros<D, COLUMNS, 1>(row, rows, step, n);
  }
}

// ---- keys and values ----

// A tile of queries that a block of keys visits.
struct visit {
  int h, query;
};

template <int D>
struct stage {
  ot_bf16 *queries, *doutputs;
  ot_query_state *states;  // [OTHERS]
};

template <int D>
static __device__ __forceinline__ stage<D> stage_of(unsigned char *shared, int n) {
  using t = division<D>;
  constexpr int ELEMENTS = t::OTHERS * (D + t::V);
  constexpr int BYTES = ELEMENTS * (int)sizeof(ot_bf16) + t::OTHERS * (int)sizeof(ot_query_state);
  ot_bf16 *const queries = (ot_bf16 *)(shared + n % 2 * BYTES);
  return {queries, queries + t::OTHERS * D, (ot_query_state *)(queries + ELEMENTS)};
}

// Starts the copies of a visit.
template <int D>
static __device__ __forceinline__ void copy_queries(const backward &f, visit v,
                                                    const stage<D> &to) {
  constexpr int V = division<D>::V, OTHERS = division<D>::OTHERS;
  const int T = f.shape.T;
  const int64_t step = (int64_t)f.shape.H * D;
  const int64_t token = (int64_t)(blockIdx.x / f.shape.G) * T + v.query;
  ot_copy_rows<D, OTHERS, THREADS>(f.queries + token * f.query_step + v.h * D, f.query_step,
                                   T - v.query, to.queries);
  ot_copy_rows<V, OTHERS, THREADS>(f.doutput + token * step + v.h * D, step, T - v.query,
                                   to.doutputs);
}

template <bool RING, int OTHERS>
static __device__ __forceinline__ ot_query_state own_state(const backward &f, visit v) {
  if (threadIdx.x >= OTHERS) return {0, 0, {0, INT32_MAX}};
  return ot_query_state_of<RING>(f.shape, f.rows, blockIdx.x / f.shape.G, v.h,
                                 v.query + (int)threadIdx.x);
}

// Blocks (sequence and key head, key tile). WHICH gradients.
template <int D, bool RING, int WHICH>
static __global__ void __launch_bounds__(THREADS, 1) key_gradient_kernel(backward f) {
  constexpr int V = division<D>::V, OTHERS = division<D>::OTHERS, PART = division<D>::PART;
  OT_DYNAMIC_SHARED(ot_bf16, keys);
  ot_bf16 *const values = keys + OWN * D;
  unsigned char *const stages = (unsigned char *)(values + OWN * V);
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, G = shape.G, heads = shape.H / G, row = threadIdx.x / 32 * 16;
  const int b = blockIdx.x / G, g = blockIdx.x % G, key = blockIdx.y * OWN;
  const int end = key + OWN < T ? key + OWN : T;
  const ot_seen seers = ot_seers_of<RING, OTHERS, THREADS>(shape, b, key, end);
  const int h_end = seers.low < seers.high ? (g + 1) * heads : 0;
  visit v = {g * heads, seers.low};
  const ot_bf16 *const own_rows = f.keys + ((int64_t)b * T + key) * f.key_step + g * D;
  ot_copy_rows<D, OWN, THREADS>(own_rows, f.key_step, T - key, keys);
  if (WHICH & KEYS) ot_copy_rows<V, OWN, THREADS>(own_rows + G * D, f.key_step, T - key, values);
  ot_query_state own = {};
  if (v.h < h_end) {
    copy_queries<D>(f, v, stage_of<D>(stages, 0));
    own = own_state<RING, OTHERS>(f, v);
  }
  ot_copy_commit();
  float dkeys[1][WHICH & KEYS ? D / 8 : 1][4] = {}, dvalues[1][WHICH & VALUES ? V / 8 : 1][4] = {};
  for (int n = 0; v.h < h_end; n++) {
    const stage<D> from = stage_of<D>(stages, n);
    const int query = v.query;
    if (threadIdx.x < OTHERS) from.states[threadIdx.x] = own;
    const bool hidden = own.seen.low > key || (RING && own.seen.high < key + OWN);
    v = query + OTHERS < seers.high ? visit{v.h, query + OTHERS} : visit{v.h + 1, seers.low};
    if (v.h < h_end) {
      copy_queries<D>(f, v, stage_of<D>(stages, n + 1));
      own = own_state<RING, OTHERS>(f, v);
    }
    ot_copy_commit();
    ot_copy_wait<1>();
    const bool edge = __syncthreads_or(hidden) || (!RING && query < key + row + 15);
#pragma unroll 1
    for (int part = 0; part < OTHERS; part += PART) {
      if (ot_end_key<RING>(shape, query + part + PART - 1) <= key + row) continue;
      ot_bf16 *const queries = from.queries + part * D, *const doutputs = from.doutputs + part * V;
      float p[1][PART / 8][4], ds[1][PART / 8][4];
      ot_mma_rows<D>(keys, row, queries, p);
      if constexpr ((WHICH & KEYS) != 0) ot_mma_rows<V>(values, row, doutputs, ds);
      ot_turn_keys<(WHICH & KEYS) != 0>(from.states + part, shape.scale * OT_LOG2_E, key + row,
                                        edge, p, ds);
      if constexpr ((WHICH & VALUES) != 0) ot_mma_add<V>(p, doutputs, dvalues);
      if constexpr ((WHICH & KEYS) != 0) ot_mma_add<D>(ds, queries, dkeys);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  int first = blockIdx.y * OWN;
  ot_forget(first);
  const int64_t to = ((int64_t)b * T + first) * f.dkey_step + g * D;
  if constexpr ((WHICH & KEYS) != 0) {
    store_gradient<D, D, RING>(dkeys, shape.scale, keys, f.dkeys, f.dkeys_before, to, f.dkey_step,
                               T - first);
  }
  if constexpr ((WHICH & VALUES) != 0) {
    store_gradient<D, V, RING>(dvalues, 1, keys, f.dkeys, f.dkeys_before, to + G * D, f.dkey_step,
                               T - first);
  }
}

// ---- queries ----

// Blocks (sequence and head, query tile): the longest rows first.
template <int D, bool RING>
static __global__ void __launch_bounds__(THREADS, 1) query_gradient_kernel(backward f) {
  constexpr int V = division<D>::V, OTHERS = division<D>::OTHERS, STAGE = OTHERS * (D + V);
  __shared__ ot_seen rows[OWN];
  OT_DYNAMIC_SHARED(ot_bf16, queries);
  ot_bf16 *const doutputs = queries + OWN * D, *const stages = doutputs + OWN * V;
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, H = shape.H, G = shape.G, lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16, b = blockIdx.x / H, h = blockIdx.x % H;
  const int first = (int)(gridDim.y - 1 - blockIdx.y) * OWN;
  const int64_t token = (int64_t)b * T + first, step = (int64_t)H * D;
  const ot_bf16 *const keys = f.keys + b * T * f.key_step + h / (H / G) * D;
  const int least = ot_first_keys_of<RING, OWN, THREADS>(shape, b, first, rows).least;
  const int end = ot_end_key<RING>(shape, (first + OWN < T ? first + OWN : T) - 1);
  const int begin = (least < end ? least : end) / OTHERS * OTHERS;
  const auto copy = [&](int key, int n) {
    ot_bf16 *const to = stages + n % 2 * STAGE;
    const ot_bf16 *const from = keys + key * f.key_step;
    ot_copy_rows<D, OTHERS, THREADS>(from, f.key_step, T - key, to);
    ot_copy_rows<V, OTHERS, THREADS>(from + G * D, f.key_step, T - key, to + OTHERS * D);
  };
  ot_copy_rows<D, OWN, THREADS>(f.queries + token * f.query_step + h * D, f.query_step, T - first,
                                queries);
  ot_copy_rows<V, OWN, THREADS>(f.doutput + token * step + h * D, step, T - first, doutputs);
  if (begin < end) copy(begin, 0);
  ot_copy_commit();
  ot_query_state states[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    states[half] = ot_query_state_of<RING>(shape, f.rows, b, h, first + row + 8 * half + lane / 4);
  }
  const int warp_end = ot_end_key<RING>(shape, first + row + 15);
  float dqueries[1][D / 8][4] = {};
  for (int key = begin, n = 0; key < end; key += OTHERS, n++) {
    ot_bf16 *const from = stages + n % 2 * STAGE;
    if (key + OTHERS < end) copy(key + OTHERS, n + 1);
    ot_copy_commit();
    ot_copy_wait<1>();
    __syncthreads();
    if (key < warp_end) {  // not beyond the warp's queries
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      ot_mma_rows<D>(queries, row, from, p);
      ot_mma_rows<V>(doutputs, row, from + OTHERS * D, ds);
      ot_turn_queries(states, shape.scale * OT_LOG2_E, key, p, ds);
      ot_mma_add<D>(ds, from, dqueries);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  store_gradient<D, D, RING>(dqueries, shape.scale, queries, f.dqueries, f.dqueries_before,
                             token * f.dquery_step + h * D, f.dquery_step, T - first);
}

// False, without any work, if this GPU has too little shared memory.
template <int D, bool RING>
static bool run_backward(const ot_kernel_call *call, const backward &f) {
  using t = division<D>;
  constexpr int FIRST = D > 128 ? VALUES : VALUES | KEYS, REST = D > 128 ? KEYS : FIRST;
  constexpr size_t of_queries = (OWN + 2 * t::OTHERS) * (D + t::V) * sizeof(ot_bf16);
  constexpr size_t of_keys = of_queries + 2 * t::OTHERS * sizeof(ot_query_state);
  void *const stream = ot_cuda_stream_of(call);
  const unsigned B = (unsigned)(call->in[1].type.dim[0] / f.shape.T);
  const dim3 grid(B * (unsigned)f.shape.G, ot_blocks(f.shape.T, OWN));
  if (!ot_allow_shared(key_gradient_kernel<D, RING, FIRST>, of_keys) ||
      !ot_allow_shared(key_gradient_kernel<D, RING, REST>, of_keys) ||
      !ot_allow_shared(query_gradient_kernel<D, RING>, of_queries)) {
    return false;
  }
  OT_LAUNCH((key_gradient_kernel<D, RING, FIRST>), grid, THREADS, of_keys, stream, f);
  if constexpr (REST != FIRST) {
    OT_LAUNCH((key_gradient_kernel<D, RING, REST>), grid, THREADS, of_keys, stream, f);
  }
  OT_LAUNCH((query_gradient_kernel<D, RING>), dim3(B * (unsigned)f.shape.H, grid.y), THREADS,
            of_queries, stream, f);
  return true;
}

}  // namespace

extern "C" bool ot_attention_grad_mma(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &out[0]};
  if (!ot_attention_fits_mma(a, tensors, 3, 0)) return false;
  const int64_t H = a->num_heads, D = a->head_dim;
  backward f = {};
  f.shape = ot_attention_shape_of<float>(a, &in[2]);
  f.queries = (const ot_bf16 *)in[1].data;
  f.keys = f.queries + H * D;
  f.doutput = (const ot_bf16 *)in[0].data;
  f.query_step = f.key_step = f.dquery_step = f.dkey_step = (H + 2 * a->num_kv_heads) * D;
  f.dqueries = out[0].data;
  f.dkeys = (ot_bf16 *)out[0].data + H * D;
  f.rows = {(const float *)in[5].data, delta};
  bool done = false;
  ot_for_mma_head_dim(D, [&](auto d) { done = run_backward<decltype(d)::value, false>(call, f); });
  return done;
}

extern "C" bool ot_attention_block_grad_mma(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &in[2], &in[7], &in[8], &out[0], &out[1]};
  if (!ot_attention_fits_mma(a, tensors, 7, 0xfu << 3)) return false;
  const int64_t H = a->num_heads, D = a->head_dim, G = a->num_kv_heads;
  backward f = {};
  f.shape = ot_attention_block_shape_of<float>(a, &in[3]);
  f.queries = (const ot_bf16 *)in[1].data;
  f.keys = (const ot_bf16 *)in[2].data;
  f.doutput = (const ot_bf16 *)in[0].data;
  f.query_step = (H + 2 * G) * D;
  f.key_step = f.dkey_step = 2 * G * D;
  f.dquery_step = H * D;
  f.dqueries = out[0].data;
  f.dkeys = out[1].data;
  f.dqueries_before = (const float *)in[7].data;
  f.dkeys_before = (const float *)in[8].data;
  f.rows = {(const float *)in[6].data, delta};
  bool done = false;
  ot_for_mma_head_dim(D, [&](auto d) { done = run_backward<decltype(d)::value, true>(call, f); });
  return done;
}
