// SPDX-License-Identifier: Apache-2.0
// Attention forward on tensor cores (Dao 2023, FlashAttention-2): a block has a tile of queries of
// one head, a warp some rows of it; scores and output stay in registers. The next keys and values
// are copied meanwhile.
#include "kernels/cuda/attention_softmax.cuh"

extern "C" {
#include "kernels/cuda/attention_mma.h"
}

namespace {

enum { KEYS = 64 };

// How the work is divided for head dim D: registers hold the output of MT 16-row parts, and scores
// of PART keys at once.
template <int D>
struct division {
  static constexpr int WARPS = D > 128 ? 8 : 4, THREADS = 32 * WARPS, MT = D > 192 ? 1 : 2;
  static constexpr int QUERIES = 16 * MT * WARPS;
  static constexpr int PART = D == 192 ? KEYS / 4 : D > 64 ? KEYS / 2 : KEYS;
  static constexpr int V = ot_value_dim<D>, STAGE = KEYS * (D + V);  // elements of keys and values
};

struct forward {
  ot_attention_shape<float> shape;
  const ot_bf16 *queries, *keys;  // the first head of each; values come G heads after keys
  int64_t query_step, key_step;   // elements from token to token
  void *o;                        // bf16; float32 of a ring
  const float *o_before;          // of other blocks of keys, or null
  ot_softmax_ends ends;
  double *maxima;  // [blocks] or null
};

template <int WARPS, int MT>
static __device__ __forceinline__ void write_maximum(const ot_running<MT> &state, float scale,
                                                     double *maximum) {
  __shared__ float parts[WARPS];
  float largest = -INFINITY;
#pragma unroll
  for (int m = 0; m < MT; m++) {
    largest = fmaxf(largest, fmaxf(state.largest[m][0], state.largest[m][1]));
  }
  largest = ot_block_max<32 * WARPS>(largest, parts);
  if (threadIdx.x == 0) *maximum = (double)(scale * largest);
}

// The warp's output, by way of its rows of the queries' tile.
template <int D, bool RING, int MT, int DT>
static __device__ __forceinline__ void store_output(const forward &f, int first,
                                                    const ot_running<MT> &state, ot_bf16 *queries,
                                                    const float (&output)[MT][DT][4]) {
  constexpr int V = ot_value_dim<D>;
  const int T = f.shape.T, H = f.shape.H, row = threadIdx.x / 32 * 16 * MT;
  const int64_t step = (int64_t)H * D;
  const int64_t to = ((int64_t)(blockIdx.x / H) * T + first) * step + blockIdx.x % H * D;
  float factor[MT][2], weight[MT][2];
  ot_finish(f.shape, f.ends, first + row, state, factor, weight);
  if (RING) {
    float *const o = (float *)f.o + to;
    const float *const before = f.o_before ? f.o_before + to : nullptr;
    ot_store_wide<V>(output, factor, weight, before, row, o, step, T - first);
    ot_store_zeros<D, V, MT>(row, o, step, T - first);
  } else {
    ot_bf16 *const o = (ot_bf16 *)f.o + to;
    ot_store_sums<V>(output, factor, queries + row * (D - V), row, o, step, T - first);
    ot_store_zeros<D, V, MT>(row, o, step, T - first);
  }
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D, bool RING>
static __global__ void __launch_bounds__(division<D>::THREADS, 8 / division<D>::WARPS)
    forward_kernel(forward f) {
  using t = division<D>;
  constexpr int V = t::V, MT = t::MT, PART = t::PART, THREADS = t::THREADS;
  __shared__ ot_seen rows[t::QUERIES];
  OT_DYNAMIC_SHARED(ot_bf16, queries);
  ot_bf16 *const stages = queries + t::QUERIES * D;
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, H = shape.H, G = shape.G, row = threadIdx.x / 32 * 16 * MT;
  const int b = blockIdx.x / H, h = blockIdx.x % H;
  const int first = (int)(gridDim.y - 1 - blockIdx.y) * t::QUERIES;
  const ot_bf16 *const keys = f.keys + b * T * f.key_step + h / (H / G) * D;
  const ot_first_keys seen = ot_first_keys_of<RING, t::QUERIES, THREADS>(shape, b, first, rows);
  const int last = (first + t::QUERIES < T ? first + t::QUERIES : T) - 1;
  const int end = ot_end_key<RING>(shape, last);
  const int begin = (seen.least < end ? seen.least : end) / KEYS * KEYS;
  const auto copy = [&](int key, int n) {
    ot_bf16 *const to = stages + n % 2 * t::STAGE;
    const ot_bf16 *const from = keys + key * f.key_step;
    ot_copy_rows<D, KEYS, THREADS>(from, f.key_step, T - key, to);
    ot_copy_rows<V, KEYS, THREADS>(from + G * D, f.key_step, T - key, to + KEYS * D);
  };
  ot_copy_rows<D, t::QUERIES, THREADS>(f.queries + (b * (int64_t)T + first) * f.query_step + h * D,
                                       f.query_step, T - first, queries);
  if (begin < end) copy(begin, 0);
  ot_copy_commit();
  ot_running<MT> state;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      state.largest[m][half] = -INFINITY;
      state.sum[m][half] = 0;
    }
  }
  float output[MT][V / 8][4] = {};
  const int warp_end = ot_end_key<RING>(shape, first + row + 16 * MT - 1);
  for (int key = begin, n = 0; key < end; key += KEYS, n++) {
    if (key + KEYS < end) copy(key + KEYS, n + 1);
    ot_copy_commit();
    ot_copy_wait<1>();
    __syncthreads();
#pragma unroll 1
    for (int part = 0; part < KEYS; part += PART) {
      ot_bf16 *const stage = stages + n % 2 * t::STAGE;
      const int at = key + part;
      if (at >= warp_end) break;  // beyond the warp's queries
      float s[MT][PART / 8][4];
      ot_mma_rows<D>(queries, row, stage + part * D, s);
      if (at < seen.largest || at + PART > rows[row].high) ot_mask(rows + row, at, s);
      ot_exponentiate(shape.scale * OT_LOG2_E, state, s, [&](int m, int half, float factor) {
#pragma unroll
        for (int d = 0; d < V / 8; d++) {
          output[m][d][2 * half] *= factor;
          output[m][d][2 * half + 1] *= factor;
        }
      });
      ot_mma_add<V>(s, stage + KEYS * D + part * V, output);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  store_output<D, RING>(f, first, state, queries, output);
  if (!f.maxima) return;
  write_maximum<t::WARPS>(state, shape.scale,
                          f.maxima + (int64_t)blockIdx.y * gridDim.x + blockIdx.x);
}

// Returns the number of blocks; 0 if this GPU has too little shared memory.
template <int D, bool RING>
static int64_t run_forward(const ot_kernel_call *call, const forward &f) {
  using t = division<D>;
  const unsigned B = (unsigned)(call->in[0].type.dim[0] / f.shape.T);
  const dim3 grid(B * (unsigned)f.shape.H, ot_blocks(f.shape.T, t::QUERIES));
  const size_t shared = (t::QUERIES * D + 2 * t::STAGE) * sizeof(ot_bf16);
  if (!ot_allow_shared(forward_kernel<D, RING>, shared)) return 0;
  OT_LAUNCH((forward_kernel<D, RING>), grid, t::THREADS, shared, ot_cuda_stream_of(call), f);
  return (int64_t)grid.x * grid.y;
}

}  // namespace

extern "C" bool ot_attention_mma(const ot_kernel_call *call, double *maxima, int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &out[0]};
  if (!ot_attention_fits_mma(a, tensors, 2, 0)) return false;
  const int64_t D = a->head_dim, step = (a->num_heads + 2 * a->num_kv_heads) * D;
  const ot_bf16 *const qkv = (const ot_bf16 *)in[0].data;
  forward f = {};
  f.shape = ot_attention_shape_of<float>(a, &in[1]);
  f.queries = qkv;
  f.keys = qkv + a->num_heads * D;
  f.query_step = f.key_step = step;
  f.o = out[0].data;
  f.ends = {(float *)out[1].data, nullptr, ot_any_of<float>(&in[3]), (int)a->first_sink};
  f.maxima = maxima;
  ot_for_mma_head_dim(D,
                      [&](auto d) { *blocks = run_forward<decltype(d)::value, false>(call, f); });
  return *blocks > 0;
}

extern "C" bool ot_attention_block_mma(const ot_kernel_call *call, double *maxima,
                                       int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &in[1], &in[4], &out[0]};
  if (!ot_attention_fits_mma(a, tensors, 4, 1u << 2 | 1u << 3)) return false;
  const int64_t D = a->head_dim;
  forward f = {};
  f.shape = ot_attention_block_shape_of<float>(a, &in[2]);
  f.queries = (const ot_bf16 *)in[0].data;
  f.keys = (const ot_bf16 *)in[1].data;
  f.query_step = (a->num_heads + 2 * a->num_kv_heads) * D;
  f.key_step = 2 * a->num_kv_heads * D;
  f.o = out[0].data;
  f.o_before = (const float *)in[4].data;
  f.ends = {(float *)out[1].data, (const float *)in[5].data, ot_any_of<float>(&in[6]),
            (int)a->first_sink};
  f.maxima = maxima;
  ot_for_mma_head_dim(D, [&](auto d) { *blocks = run_forward<decltype(d)::value, true>(call, f); });
  return *blocks > 0;
}
