// SPDX-License-Identifier: Apache-2.0
// Attention forward on tensor cores (Dao 2023, FlashAttention-2): a block has a tile of queries of
// one head, a warp some rows of it; scores and output stay in registers. The next keys and values
// are copied meanwhile.
#include "kernels/cuda/attention_mma.cuh"

extern "C" {
#include "kernels/cuda/attention_mma.h"
}

namespace {

enum { WARPS = 4, THREADS = 32 * WARPS, KEYS = 64 };

struct forward {
  ot_attention_shape<float> shape;
  const ot_bf16 *qkv;
  ot_bf16 *o;
  float *lse;           // [B T, H]
  ot_any<float> sinks;  // or null
  int first_sink;
  double *maxima;  // [blocks] or null
};

// Of the lane's rows. Scores are q . k without the scale until they are exponents of 2.
template <int MT>
struct running {
  float largest[MT][2], sum[MT][2];  // sum: of the lane's own columns
};

// Hides the keys from `key` on that queries from `query` on of sequence b do not see.
template <int MT, int NT>
static __device__ __forceinline__ void mask(const ot_attention_shape<float> &shape, int b,
                                            int query, int key, float (&s)[MT][NT][4]) {
  const int lane = threadIdx.x % 32, first = key + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = query + 16 * m + 8 * half + lane / 4;
      const int low = shape.first_key(b, i) - first, high = i - first;
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
          if (8 * n + k < low || 8 * n + k > high) s[m][n][2 * half + k] = -INFINITY;
        }
      }
    }
  }
}

// Turns scores into 2^(unit score - unit largest), unit = scale * log2(e), and rescales the sums of
// the tiles before.
template <int MT, int NT, int DT>
static __device__ __forceinline__ void exponentiate(float unit, running<MT> &state,
                                                    float (&s)[MT][NT][4],
                                                    float (&output)[MT][DT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float largest = state.largest[m][half];
#pragma unroll
      for (int n = 0; n < NT; n++) {
        largest = fmaxf(largest, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      }
      largest = ot_quad_max(largest);
      // No visible key yet: any finite base makes 2^(-inf - base) zero.
      const float base = largest > -INFINITY ? unit * largest : 0;
      const float rescale = ot_exp2(unit * state.largest[m][half] - base);
      float sum = state.sum[m][half] * rescale;
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int k = 2 * half; k < 2 * half + 2; k++) {
          s[m][n][k] = ot_exp2(unit * s[m][n][k] - base);
          sum += s[m][n][k];
        }
      }
      state.sum[m][half] = sum;
      state.largest[m][half] = largest;
#pragma unroll
      for (int d = 0; d < DT; d++) {
        output[m][d][2 * half] *= rescale;
        output[m][d][2 * half + 1] *= rescale;
      }
    }
  }
}

// The factors of the output and the stored lse; a sink is a score without a value.
template <int MT>
static __device__ __forceinline__ void finish(const forward &f, int query, const running<MT> &state,
                                              float (&factor)[MT][2]) {
  const int lane = threadIdx.x % 32, H = f.shape.H, b = blockIdx.x / H, h = blockIdx.x % H;
  const float sink = f.sinks.data ? f.sinks[f.first_sink + h] : -INFINITY;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = query + 16 * m + 8 * half + lane / 4;
      const float own = f.shape.scale * state.largest[m][half];
      const float largest = fmaxf(sink, own);
      const float base = largest > -INFINITY ? largest : 0;
      const float block = expf(own - base);
      const float sum = expf(sink - base) + block * ot_quad_sum(state.sum[m][half]);
      factor[m][half] = sum > 0 ? block / sum : 0;
      if (lane % 4 == 0 && i < f.shape.T) {
        f.lse[((int64_t)b * f.shape.T + i) * H + h] = sum > 0 ? base + logf(sum) : -INFINITY;
      }
    }
  }
}

template <int MT>
static __device__ __forceinline__ void write_maximum(const running<MT> &state, float scale,
                                                     double *maximum) {
  __shared__ float parts[WARPS];
  float largest = -INFINITY;
#pragma unroll
  for (int m = 0; m < MT; m++) {
    largest = fmaxf(largest, fmaxf(state.largest[m][0], state.largest[m][1]));
  }
  largest = ot_block_max<THREADS>(largest, parts);
  if (threadIdx.x == 0) *maximum = (double)(scale * largest);
}

// Blocks (sequence and head, query tile): the longest rows first.
template <int D, int MT>
static __global__ void __launch_bounds__(THREADS, 2) forward_kernel(forward f) {
  constexpr int QUERIES = 16 * MT * WARPS;
  constexpr int PART = D > 64 ? KEYS / 2 : KEYS;  // keys at once, so that registers suffice
  OT_DYNAMIC_SHARED(ot_bf16, queries);
  ot_bf16 *const stages = queries + QUERIES * D;
  const ot_attention_shape<float> &shape = f.shape;
  const int T = shape.T, H = shape.H, row = threadIdx.x / 32 * 16 * MT;
  const int b = blockIdx.x / H, h = blockIdx.x % H, kv = H + h / (H / shape.G);
  const int first = (int)(gridDim.y - 1 - blockIdx.y) * QUERIES;
  const int64_t step = (int64_t)(H + 2 * shape.G) * D;
  const ot_bf16 *const sequence = f.qkv + b * T * step, *const keys = sequence + kv * D;
  const ot_first_keys seen = ot_first_keys_of<QUERIES, THREADS>(shape, b, first);
  const int end = first + QUERIES < T ? first + QUERIES : T;
  const int begin = seen.least / KEYS * KEYS;
  const auto copy = [&](int key, int n) {
    ot_bf16 *const to = stages + n % 2 * 2 * KEYS * D;
    ot_copy_rows<D, KEYS, THREADS>(keys + key * step, step, T - key, to);
    ot_copy_rows<D, KEYS, THREADS>(keys + key * step + shape.G * D, step, T - key, to + KEYS * D);
  };
  ot_copy_rows<D, QUERIES, THREADS>(sequence + first * step + h * D, step, T - first, queries);
  copy(begin, 0);
  ot_copy_commit();
  running<MT> state;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      state.largest[m][half] = -INFINITY;
      state.sum[m][half] = 0;
    }
  }
  float output[MT][D / 8][4] = {};
  for (int key = begin, n = 0; key < end; key += KEYS, n++) {
    if (key + KEYS < end) copy(key + KEYS, n + 1);
    ot_copy_commit();
    ot_copy_wait<1>();
    __syncthreads();
#pragma unroll 1
    for (int part = 0; part < KEYS; part += PART) {
      ot_bf16 *const from = stages + (n % 2 * 2 * KEYS + part) * D;
      const int at = key + part;
      if (at >= first + row + 16 * MT) break;  // beyond the warp's queries
      float s[MT][PART / 8][4];
      ot_mma_rows<D>(queries, row, from, s);
      if (at < seen.largest || at + PART > first + row + 1) mask(shape, b, first + row, at, s);
      exponentiate(shape.scale * OT_LOG2_E, state, s, output);
      ot_mma_add<D>(s, from + KEYS * D, output);
    }
    __syncthreads();
  }
  ot_copy_wait<0>();
  float factor[MT][2];
  finish(f, first + row, state, factor);
  ot_store_sums<D>(output, factor, queries, row, f.o + ((b * T + first) * (int64_t)H + h) * D,
                   (int64_t)H * D, T - first);
  if (!f.maxima) return;
  write_maximum(state, shape.scale, f.maxima + (int64_t)blockIdx.y * gridDim.x + blockIdx.x);
}

template <int D, int MT>
static int64_t run_forward(const ot_kernel_call *call, const forward &f) {
  constexpr int QUERIES = 16 * MT * WARPS;
  const unsigned B = (unsigned)(call->in[0].type.dim[0] / f.shape.T);
  const dim3 grid(B * (unsigned)f.shape.H, ot_blocks(f.shape.T, QUERIES));
  const size_t shared = (QUERIES + 4 * KEYS) * D * sizeof(ot_bf16);
  ot_allow_shared(forward_kernel<D, MT>, shared);
  OT_LAUNCH((forward_kernel<D, MT>), grid, THREADS, shared, ot_cuda_stream_of(call), f);
  return (int64_t)grid.x * grid.y;
}

}  // namespace

extern "C" bool ot_attention_mma(const ot_kernel_call *call, double *maxima, int64_t *blocks) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor *const tensors[] = {&in[0], &out[0]};
  if (!ot_attention_fits_mma(a, tensors, 2)) return false;
  const forward f = {ot_attention_shape_of<float>(a, &in[1]),
                     (const ot_bf16 *)in[0].data,
                     (ot_bf16 *)out[0].data,
                     (float *)out[1].data,
                     ot_any_of<float>(&in[3]),
                     (int)a->first_sink,
                     maxima};
  *blocks = a->head_dim == 64 ? run_forward<64, 2>(call, f) : run_forward<128, 2>(call, f);
  return true;
}
