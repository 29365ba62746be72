// SPDX-License-Identifier: Apache-2.0
// The softmax of attention on tensor cores, in the registers of a warp (attention_mma.cuh): a
// running maximum and sum per query (online softmax, Milakov and Gimelshein 2018).
#pragma once

#include "kernels/cuda/attention_mma.cuh"

// The begin and the end of a softmax.
struct ot_softmax_ends {
  float *lse;               // [B T, H]
  const float *lse_before;  // of other blocks of keys, or null
  ot_any<float> sinks;      // or null; not with lse_before
  int first_sink;
};

// The running softmax of the lane's rows. Scores are q . k without the scale until they are
// exponents of 2.
template <int MT>
struct ot_running {
  float largest[MT][2], sum[MT][2];  // sum: of the lane's own columns
};

// Hides the keys from `key` on that the warp's queries, which see `rows`, do not see.
template <int MT, int NT>
static __device__ __forceinline__ void ot_mask(const ot_seen *rows, int key, float (&s)[MT][NT][4]) {
  const int lane = threadIdx.x % 32, first = key + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const ot_seen seen = rows[16 * m + 8 * half + lane / 4];
      const int low = seen.low - first, high = seen.high - first;
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
          if (8 * n + k < low || 8 * n + k >= high) s[m][n][2 * half + k] = -INFINITY;
        }
      }
    }
  }
}

// Turns scores into 2^(unit score - unit largest), unit = scale * log2(e). rescale(m, half, factor)
// multiplies the output of the tiles before in these rows.
template <int MT, int NT, class Rescale>
static __device__ __forceinline__ void ot_exponentiate(float unit, ot_running<MT> &state,
                                                       float (&s)[MT][NT][4], Rescale rescale) {
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
      const float factor = ot_exp2(fmaf(unit, state.largest[m][half], -base));
      float sum = state.sum[m][half] * factor;
#pragma unroll
      for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int k = 2 * half; k < 2 * half + 2; k++) {
          s[m][n][k] = ot_exp2(fmaf(unit, s[m][n][k], -base));
          sum += s[m][n][k];
        }
      }
      state.sum[m][half] = sum;
      state.largest[m][half] = largest;
      rescale(m, half, factor);
    }
  }
}

// The stored lse, and the factors of the output and of o_before. What earlier blocks have seen, or
// a sink, is one more score; a sink has no value.
template <int MT>
static __device__ __forceinline__ void ot_finish(const ot_attention_shape<float> &shape,
                                                 const ot_softmax_ends &ends, int query,
                                                 const ot_running<MT> &state,
                                                 float (&factor)[MT][2], float (&weight)[MT][2]) {
  const int lane = threadIdx.x % 32, H = shape.H, b = blockIdx.x / H, h = blockIdx.x % H;
  const float sink = ends.sinks.data ? ends.sinks[ends.first_sink + h] : -INFINITY;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = query + 16 * m + 8 * half + lane / 4;
      const int64_t row = ((int64_t)b * shape.T + i) * H + h;
      const float before = ends.lse_before && i < shape.T ? ends.lse_before[row] : sink;
      const float own = shape.scale * state.largest[m][half];
      const float largest = fmaxf(before, own);
      const float base = largest > -INFINITY ? largest : 0;
      const float block = expf(own - base), rest = expf(before - base);
      const float sum = rest + block * ot_quad_sum(state.sum[m][half]);
      factor[m][half] = sum > 0 ? block / sum : 0;
      weight[m][half] = sum > 0 ? rest / sum : 0;
      if (lane % 4 == 0 && i < shape.T) ends.lse[row] = sum > 0 ? base + logf(sum) : -INFINITY;
    }
  }
}
