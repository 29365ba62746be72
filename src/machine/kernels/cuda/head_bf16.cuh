// SPDX-License-Identifier: Apache-2.0
// The loss of rows of bf16 logits, which their gradient replaces. The first pass over a row finds
// the largest logit and the sum of exponentials relative to it at once, and keeps in shared memory
// as much of the row as fits there; the second pass reads the rest again and writes the gradient.
// So an element is moved to and from memory 6 bytes at most, and 4 where the row fits or its rest
// is still in the L2 cache.
#pragma once

#include "kernels/cuda/head_rows.cuh"

extern "C" {
#include "ops/head.h"
}

namespace {

enum { EIGHT = 8, AT_ONCE = 4 };  // logits of one access; accesses under way

struct __align__(16) eight_logits {
  uint32_t pairs[EIGHT / 2];
};

// Logits of a chunk, [rows, stride], of which each row has V; the first `kept` accesses to a row
// stay in shared memory.
struct bf16_logits {
  eight_logits *logits;
  int V, stride, kept;
  const int32_t *targets;  // of the chunk's rows
  float cap;               // 0: none
};

template <bool CAPPED>
__device__ __forceinline__ float capped(float logit, float cap) {
  return CAPPED ? cap * tanh(logit / cap) : logit;
}

// Logits 8 v to 8 v + 7 of a row, -INFINITY beyond V.
template <bool CAPPED>
__device__ __forceinline__ void widen(const bf16_logits &c, const eight_logits &from, int v,
                                      float (&x)[EIGHT]) {
#pragma unroll
  for (int k = 0; k < EIGHT; k += 2) {
    x[k] = capped<CAPPED>(__uint_as_float(from.pairs[k / 2] << 16), c.cap);
    x[k + 1] = capped<CAPPED>(__uint_as_float(from.pairs[k / 2] & 0xffff0000u), c.cap);
  }
  if (v * EIGHT + EIGHT <= c.V) return;
#pragma unroll
  for (int k = 0; k < EIGHT; k++) {
    if (v * EIGHT + k >= c.V) x[k] = -INFINITY;
  }
}

// e^(x - base). The difference of two bf16 numbers is exact or next to it, so the error is 2^-22 of
// the result, where x is far below base a few times that.
__device__ __forceinline__ float exponential(float x, float base) {
  return ot_exp2((x - base) * 1.44269504f);
}

// The largest of some logits, NaN ignored, and the sum of exponentials relative to it.
struct running_sum {
  float largest;
  double sum;

  __device__ __forceinline__ void add(const float (&x)[EIGHT]) {
    float most = largest, more = 0;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) most = fmaxf(x[k], most);
    if (most > largest) sum *= (double)exponential(largest, most);
    largest = most;
    const float base = most == -INFINITY ? 0 : most;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) more += exponential(x[k], base);
    sum += (double)more;
  }
};

// Accesses first, first + THREADS, .. to a row, as far as there are `vectors`.
__device__ __forceinline__ void read_some(const eight_logits *row, int first, int vectors,
                                          eight_logits (&to)[AT_ONCE]) {
#pragma unroll
  for (int u = 0; u < AT_ONCE; u++) {
    const int v = first + u * THREADS;
    if (v < vectors) to[u] = row[v];
  }
}

template <bool CAPPED>
__device__ row_statistics<float> read_bf16_row(const bf16_logits &c, const eight_logits *row,
                                               eight_logits *kept, double *parts, float *most) {
  const int vectors = (c.V + EIGHT - 1) / EIGHT;
  running_sum s = {-INFINITY, 0};
  for (int first = threadIdx.x; first < vectors; first += THREADS * AT_ONCE) {
    eight_logits at[AT_ONCE] = {};
    read_some(row, first, vectors, at);
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      const int v = first + u * THREADS;
      if (v >= vectors) continue;
      if (v < c.kept) kept[v] = at[u];
      float x[EIGHT];
      widen<CAPPED>(c, at[u], v, x);
      s.add(x);
    }
  }
  const float largest = ot_block_max<THREADS>(s.largest, most);
  const double own = s.sum * (double)exponential(s.largest, largest);
  return {largest, ot_block_sum<THREADS>(own, parts)};
}

// factor * e^(logit - largest) times the slope of the cap, zeros beyond V. Each thread reads from
// `kept` what it has put there.
template <bool CAPPED>
__device__ void write_exponentials(const bf16_logits &c, eight_logits *row,
                                   const eight_logits *kept, float largest, float factor) {
  const int vectors = c.stride / EIGHT, given = (c.V + EIGHT - 1) / EIGHT;
  for (int first = threadIdx.x; first < vectors; first += THREADS * AT_ONCE) {
    eight_logits at[AT_ONCE] = {};
    read_some(first + (AT_ONCE - 1) * THREADS < c.kept ? kept : row, first, given, at);
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      const int v = first + u * THREADS;
      if (v >= vectors) continue;
      float x[EIGHT];
      widen<CAPPED>(c, at[u], v, x);
#pragma unroll
      for (int k = 0; k < EIGHT; k++) {
        const float e = exponential(x[k], largest) * factor;
        x[k] = CAPPED && v * EIGHT + k < c.V ? e * ot_cap_slope(x[k], c.cap) : e;
      }
#pragma unroll
      for (int k = 0; k < EIGHT; k += 2) at[u].pairs[k / 2] = ot_pack_bf16(x[k], x[k + 1]);
      row[v] = at[u];
    }
  }
}

__device__ __forceinline__ void clear_row(const bf16_logits &c, eight_logits *row) {
  for (int v = threadIdx.x; v < c.stride / EIGHT; v += THREADS) row[v] = {};
}

// Losses of the rows of a chunk, of the weighted targets and of the data's; null: without weights.
struct row_losses {
  double *nats, *data;
};

// Weighted targets or one target of weight 1: first W p everywhere, then less their weights at the
// ids, whose logits are kept.
template <bool CAPPED>
__global__ void __launch_bounds__(THREADS, 2)
    bf16_loss_kernel(bf16_logits c, ot_weighted_targets weighted, const double *inverse_tokens,
                     row_losses losses) {
  __shared__ double parts[THREADS / 32];
  __shared__ float most[THREADS / 32], at_ids[OT_HEAD_IDS_MAX];
  OT_DYNAMIC_SHARED(eight_logits, kept);
  const int64_t r = blockIdx.x;
  eight_logits *const vectors = c.logits + r * (c.stride / EIGHT);
  ot_bf16 *const row = (ot_bf16 *)vectors;
  const int32_t target = c.targets[r];
  if (target < 0) {
    if (threadIdx.x == 0) losses.nats[r] = 0;
    if (threadIdx.x == 0 && losses.data) losses.data[r] = 0;
    return clear_row(c, vectors);
  }
  const ot_row_targets pulls(weighted, r, c.targets);
  for (int k = threadIdx.x; k < pulls.K; k += THREADS) {
    at_ids[k] = capped<CAPPED>(ot_wide(row[pulls.ids[k]]), c.cap);
  }
  const double own = (double)capped<CAPPED>(ot_wide(row[target]), c.cap);
  const row_statistics<float> s = read_bf16_row<CAPPED>(c, vectors, kept, parts, most);
  double weight = 0, pulled = 0;
  for (int k = 0; k < pulls.K; k++) {
    weight += pulls.weight(k);
    pulled += pulls.weight(k) * (double)at_ids[k];
  }
  if (threadIdx.x == 0) {
    losses.nats[r] = weight * log(s.sum) + (weight * (double)s.largest - pulled);
    if (losses.data) losses.data[r] = log(s.sum) + ((double)s.largest - own);
  }
  const float factor = (float)(*inverse_tokens * weight / s.sum);
  write_exponentials<CAPPED>(c, vectors, kept, s.largest, factor);
  __syncthreads();
  for (int k = threadIdx.x; k < pulls.K; k += THREADS) {
    if (!pulls.is_first(k)) continue;
    float pull = 0;
    for (int j = k; j < pulls.K; j++) {
      if (pulls.ids[j] == pulls.ids[k]) pull += (float)(*inverse_tokens * pulls.weight(j));
    }
    const float p = exponential(at_ids[k], s.largest) * factor - pull;
    ot_narrow(CAPPED ? p * ot_cap_slope(at_ids[k], c.cap) : p, &row[pulls.ids[k]]);
  }
}

}  // namespace
