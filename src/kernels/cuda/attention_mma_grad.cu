// SPDX-License-Identifier: Apache-2.0
// Attention backward on tensor cores, in two kernels as in attention_grad.cu. A block of the first
// has keys as rows of its products, so that p and ds, transposed, go from the registers of one
// product into those of the next; a block of the second has queries as rows. The tiles that a block
// visits are copied into two stages in turn.
#include "kernels/cuda/attention_mma.cuh"

extern "C" {
#include "kernels/cuda/attention_mma.h"
}

namespace {

enum { WARPS = 8, THREADS = 32 * WARPS, OWN = 16 * WARPS, OTHERS = 64 };

// A block owns OWN rows and visits tiles of OTHERS rows.
struct backward {
  ot_attention_shape<float> shape;
  const ot_bf16 *qkv, *doutput;
  ot_bf16 *dqkv;
  const float *lse, *delta;  // [B T, H]
};

// Elements between the rows of qkv.
template <int D>
static __device__ __forceinline__ int64_t qkv_step(const ot_attention_shape<float> &shape) {
  return (int64_t)(shape.H + 2 * shape.G) * D;
}

// lse, in powers of two, and delta of a query and head, and the first key that it sees.
struct query_state {
  float lse, delta;
  int low;
};

static __device__ __forceinline__ query_state query_state_of(const backward &f, int b, int h,
                                                             int query) {
  query_state state = {0, 0, f.shape.first_key(b, query)};
  if (query >= f.shape.T) return state;
  const int64_t i = ((int64_t)b * f.shape.T + query) * f.shape.H + h;
  state.lse = f.lse[i] * OT_LOG2_E;
  state.delta = f.delta[i];
  return state;
}

// ---- keys and values ----

// A tile of queries that a block of keys visits.
struct visit {
  int h, query;

  // From `key` to `last` for each head.
  __device__ visit next(int key, int last) const {
    return query + OTHERS < last ? visit{h, query + OTHERS} : visit{h + 1, key};
  }
};

template <int D>
struct stage {
  ot_bf16 *queries, *doutputs;
  query_state *states;  // [OTHERS]
};

template <int D>
static __device__ __forceinline__ stage<D> stage_of(unsigned char *shared, int n) {
  constexpr int BYTES = 2 * OTHERS * D * (int)sizeof(ot_bf16) + OTHERS * (int)sizeof(query_state);
  ot_bf16 *const queries = (ot_bf16 *)(shared + n % 2 * BYTES);
  return {queries, queries + OTHERS * D, (query_state *)(queries + 2 * OTHERS * D)};
}

// Starts the copies of a visit.
template <int D>
static __device__ __forceinline__ void copy_queries(const backward &f, visit v,
                                                    const stage<D> &to) {
  const int T = f.shape.T, H = f.shape.H;
  const int64_t step = qkv_step<D>(f.shape);
  const int64_t token = (int64_t)(blockIdx.x / f.shape.G) * T + v.query;
  ot_copy_rows<D, OTHERS, THREADS>(f.qkv + token * step + v.h * D, step, T - v.query, to.queries);
  ot_copy_rows<D, OTHERS, THREADS>(f.doutput + (token * H + v.h) * D, (int64_t)H * D, T - v.query,
                                   to.doutputs);
}

static __device__ __forceinline__ query_state own_state(const backward &f, visit v) {
  if (threadIdx.x >= OTHERS) return {0, 0, 0};
  return query_state_of(f, blockIdx.x / f.shape.G, v.h, v.query + (int)threadIdx.x);
}

// The first key and query of a warp's product; `edge` if some query does not see some key.
struct corner {
  int key, query;
  bool edge;
};

// Turns the products k . q and v . do into p and ds.
template <int NT>
static __device__ __forceinline__ void turn_keys(const query_state *states, float unit, corner at,
                                                 float (&p)[1][NT][4], float (&ds)[1][NT][4]) {
  const int lane = threadIdx.x % 32, key = at.key + lane / 4;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int i = 8 * n + lane % 4 * 2 + k;
      const query_state state = states[i];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int j = key + 8 * half, e = 2 * half + k;
        float weight = ot_exp2(unit * p[0][n][e] - state.lse);
        if (at.edge && (j < state.low || j > at.query + i)) weight = 0;
        p[0][n][e] = weight;
        ds[0][n][e] = weight * (ds[0][n][e] - state.delta);
      }
    }
  }
}

// The end of the queries that see keys from `key` to `end`: of those from `key` on, the last.
static __device__ __forceinline__ int after_last_query(const ot_attention_shape<float> &shape,
                                                       int b, int key, int end) {
  __shared__ int parts[WARPS];
  const int T = shape.T;
  const int last = shape.window > 0 && end + shape.window - 1 < T ? end + shape.window - 1 : T;
  if (!shape.doc_start) return last;
  int found = key;
  for (int i = key + (int)threadIdx.x; i < last; i += THREADS) {
    if (shape.first_key(b, i) < end) found = i;
  }
  return ot_block_max<THREADS>(found, parts) + 1;
}

// Blocks (sequence and key head, key tile).
template <int D>
static __global__ void __launch_bounds__(THREADS, 1) key_gradient_kernel(backward f) {
  constexpr int PART = D > 64 ? OTHERS / 2 : OTHERS;  // queries at once, so that registers suffice
  OT_DYNAMIC_SHARED(ot_bf16, keys);
  ot_bf16 *const values = keys + OWN * D;
  unsigned char *const stages = (unsigned char *)(values + OWN * D);
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, H = shape.H, G = shape.G, heads = H / G, row = threadIdx.x / 32 * 16;
  const int b = blockIdx.x / G, g = blockIdx.x % G, key = blockIdx.y * OWN;
  const int end = key + OWN < T ? key + OWN : T;
  const int last = after_last_query(shape, b, key, end);
  visit v = {g * heads, key};
  const int64_t step = qkv_step<D>(shape);
  const auto own_rows = [&](int first) { return (b * (int64_t)T + first) * step + (H + g) * D; };
  ot_copy_rows<D, OWN, THREADS>(f.qkv + own_rows(key), step, T - key, keys);
  ot_copy_rows<D, OWN, THREADS>(f.qkv + own_rows(key) + G * D, step, T - key, values);
  copy_queries<D>(f, v, stage_of<D>(stages, 0));
  ot_copy_commit();
  query_state own = own_state(f, v);
  float dkeys[1][D / 8][4] = {}, dvalues[1][D / 8][4] = {};
  for (int n = 0; v.h < (g + 1) * heads; n++) {
    const stage<D> from = stage_of<D>(stages, n);
    const int query = v.query;
    if (threadIdx.x < OTHERS) from.states[threadIdx.x] = own;
    const bool hidden = threadIdx.x < OTHERS && own.low > key;
    v = v.next(key, last);
    if (v.h < (g + 1) * heads) {
      copy_queries<D>(f, v, stage_of<D>(stages, n + 1));
      own = own_state(f, v);
    }
    ot_copy_commit();
    ot_copy_wait<1>();
    const bool edge = __syncthreads_or(hidden) || query < key + row + 15;
#pragma unroll 1
    for (int part = 0; part < OTHERS; part += PART) {
      if (query + part + PART <= key + row) continue;  // before the warp's keys
      ot_bf16 *const queries = from.queries + part * D, *const doutputs = from.doutputs + part * D;
      const corner at = {key + row, query + part, edge};
      float p[1][PART / 8][4], ds[1][PART / 8][4];
      ot_mma_rows<D>(keys, row, queries, p);
      ot_mma_rows<D>(values, row, doutputs, ds);
      turn_keys(from.states + part, shape.scale * OT_LOG2_E, at, p, ds);
      ot_mma_add<D>(p, doutputs, dvalues);
      ot_mma_add<D>(ds, queries, dkeys);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  const float one[1][2] = {{1, 1}}, scale[1][2] = {{shape.scale, shape.scale}};
  int first = blockIdx.y * OWN;
  ot_forget(first);
  ot_bf16 *const to = f.dqkv + own_rows(first);
  ot_store_sums<D>(dkeys, scale, keys, row, to, step, T - first);
  ot_store_sums<D>(dvalues, one, values, row, to + G * D, step, T - first);
}

// ---- queries ----

// Turns the products q . k and do . v into p and ds; key and query are relative.
template <int NT>
static __device__ __forceinline__ void turn_queries(const query_state (&states)[2], float unit,
                                                    int apart, float (&p)[1][NT][4],
                                                    float (&ds)[1][NT][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const query_state &state = states[k / 2];
      const int key = 8 * n + lane % 4 * 2 + k % 2;
      const bool sees = key >= state.low + apart && key <= k / 2 * 8 + lane / 4 + apart;
      const float weight = sees ? ot_exp2(unit * p[0][n][k] - state.lse) : 0;
      ds[0][n][k] = weight * (ds[0][n][k] - state.delta);
    }
  }
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D>
static __global__ void __launch_bounds__(THREADS, 1) query_gradient_kernel(backward f) {
  OT_DYNAMIC_SHARED(ot_bf16, queries);
  ot_bf16 *const doutputs = queries + OWN * D, *const stages = doutputs + OWN * D;
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, H = shape.H, G = shape.G, lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16, b = blockIdx.x / H, h = blockIdx.x % H;
  const int first = (int)(gridDim.y - 1 - blockIdx.y) * OWN, own = first + row;
  const int64_t step = qkv_step<D>(shape), token = (int64_t)b * T;
  const ot_bf16 *const keys = f.qkv + token * step + (H + h / (H / G)) * D;
  const int begin = ot_first_keys_of<OWN, THREADS>(shape, b, first).least / OTHERS * OTHERS;
  const int end = first + OWN < T ? first + OWN : T;
  const auto copy = [&](int key, int n) {
    ot_bf16 *const to = stages + n % 2 * 2 * OTHERS * D;
    ot_copy_rows<D, OTHERS, THREADS>(keys + key * step, step, T - key, to);
    ot_copy_rows<D, OTHERS, THREADS>(keys + key * step + G * D, step, T - key, to + OTHERS * D);
  };
  ot_copy_rows<D, OWN, THREADS>(f.qkv + (token + first) * step + h * D, step, T - first, queries);
  ot_copy_rows<D, OWN, THREADS>(f.doutput + ((token + first) * H + h) * D, (int64_t)H * D,
                                T - first, doutputs);
  copy(begin, 0);
  ot_copy_commit();
  query_state states[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    states[half] = query_state_of(f, b, h, own + 8 * half + lane / 4);
    states[half].low -= own;
  }
  float dqueries[1][D / 8][4] = {};
  for (int key = begin, n = 0; key < end; key += OTHERS, n++) {
    ot_bf16 *const from = stages + n % 2 * 2 * OTHERS * D;
    if (key + OTHERS < end) copy(key + OTHERS, n + 1);
    ot_copy_commit();
    ot_copy_wait<1>();
    __syncthreads();
    if (key < own + 16) {  // not beyond the warp's queries
      float p[1][OTHERS / 8][4], ds[1][OTHERS / 8][4];
      ot_mma_rows<D>(queries, row, from, p);
      ot_mma_rows<D>(doutputs, row, from + OTHERS * D, ds);
      turn_queries(states, shape.scale * OT_LOG2_E, own - key, p, ds);
      ot_mma_add<D>(ds, from, dqueries);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  const float scale[1][2] = {{shape.scale, shape.scale}};
  ot_store_sums<D>(dqueries, scale, queries, row, f.dqkv + (token + first) * step + h * D, step,
                   T - first);
}

template <int D>
static void run_backward(const ot_kernel_call *call, const backward &f) {
  const unsigned B = (unsigned)(call->in[1].type.dim[0] / f.shape.T);
  const unsigned tiles = ot_blocks(f.shape.T, OWN);
  void *const stream = ot_cuda_stream_of(call);
  const size_t heads = (2 * OWN + 4 * OTHERS) * D * sizeof(ot_bf16);
  const size_t states = 2 * OTHERS * sizeof(query_state);
  ot_allow_shared(key_gradient_kernel<D>, heads + states);
  ot_allow_shared(query_gradient_kernel<D>, heads);
  OT_LAUNCH(key_gradient_kernel<D>, dim3(B * (unsigned)f.shape.G, tiles), THREADS, heads + states,
            stream, f);
  OT_LAUNCH(query_gradient_kernel<D>, dim3(B * (unsigned)f.shape.H, tiles), THREADS, heads, stream,
            f);
}

}  // namespace

extern "C" bool ot_attention_grad_mma(const ot_kernel_call *call, const float *delta) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &call->out[0]};
  if (!ot_attention_fits_mma(a, tensors, 3)) return false;
  const backward f = {ot_attention_shape_of<float>(a, &in[2]),
                      (const ot_bf16 *)in[1].data,
                      (const ot_bf16 *)in[0].data,
                      (ot_bf16 *)call->out[0].data,
                      (const float *)in[5].data,
                      delta};
  if (a->head_dim == 64) {
    run_backward<64>(call, f);
  } else {
    run_backward<128>(call, f);
  }
  return true;
}
