// SPDX-License-Identifier: Apache-2.0
// The gradient of the softmax on tensor cores, in the registers of a warp (attention_mma.cuh), from
// lse and delta_i = do_i . o_i:
//   p_ij = exp(s_ij - lse_i)    dp_ij = do_i . v_j    ds_ij = p_ij (dp_ij - delta_i)
#pragma once

#include "kernels/cuda/attention_mma.cuh"

// [B T, H] each.
struct ot_softmax_rows {
  const float *lse, *delta;
};

// lse, in powers of two, and delta of a query and head, and the keys that it sees.
struct ot_query_state {
  float lse, delta;
  ot_seen seen;
};

template <bool RING>
static __device__ __forceinline__ ot_query_state
ot_query_state_of(const ot_attention_shape<float> &shape, ot_softmax_rows rows, int b, int h,
                  int query) {
  ot_query_state state = {0, 0, ot_seen_of<RING>(shape, b, query)};
  if (query >= shape.T) return state;
  const int64_t i = ((int64_t)b * shape.T + query) * shape.H + h;
  state.lse = rows.lse[i] * OT_LOG2_E;
  state.delta = rows.delta[i];
  return state;
}

// The queries that may see keys from `key` to before `end`, from a multiple of OTHERS on.
template <bool RING, int OTHERS, int THREADS>
static __device__ __forceinline__ ot_seen
ot_seers_of(const ot_attention_shape<float> &shape, int b, int key, int end) {
  __shared__ int parts[THREADS / 32];
  const int first = RING ? shape.queries.before(shape.keys.position(key)) : key;
  ot_seen seers = {first / OTHERS * OTHERS, shape.T};
  if (shape.window > 0) {
    const int past = (RING ? shape.keys.position(end - 1) : end - 1) + shape.window;
    seers.high = shape.queries.before(past);
  }
  if (!shape.doc_start) return seers;
  int found = first - 1;
  for (int i = first + (int)threadIdx.x; i < seers.high; i += THREADS) {
    if (ot_seen_of<RING>(shape, b, i).low < end) found = i;
  }
  seers.high = ot_block_max<THREADS>(found, parts) + 1;
  return seers;
}

// Turns the products k . q of the keys from `key` on into p and, with DS, v . do into ds; `edge`
// if some query does not see some key.
template <bool DS, int NT>
static __device__ __forceinline__ void ot_turn_keys(const ot_query_state *states, float unit,
                                                    int key, bool edge, float (&p)[1][NT][4],
                                                    float (&ds)[1][NT][4]) {
  const int lane = threadIdx.x % 32, first = key + lane / 4;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const ot_query_state state = states[8 * n + lane % 4 * 2 + k];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int j = first + 8 * half, e = 2 * half + k;
        float weight = ot_exp2(fmaf(unit, p[0][n][e], -state.lse));
        if (edge && (j < state.seen.low || j >= state.seen.high)) weight = 0;
        p[0][n][e] = weight;
        if (DS) ds[0][n][e] = weight * (ds[0][n][e] - state.delta);
      }
    }
  }
}

// Turns the products q . k and do . v with the keys from `key` on into p and ds.
template <int NT>
static __device__ __forceinline__ void ot_turn_queries(const ot_query_state (&states)[2],
                                                       float unit, int key, float (&p)[1][NT][4],
                                                       float (&ds)[1][NT][4]) {
  const int first = key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < NT; n++) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const ot_query_state &state = states[k / 2];
      const int j = first + 8 * n + k % 2;
      const bool sees = j >= state.seen.low && j < state.seen.high;
      const float weight = sees ? ot_exp2(fmaf(unit, p[0][n][k], -state.lse)) : 0;
      ds[0][n][k] = weight * (ds[0][n][k] - state.delta);
    }
  }
}
