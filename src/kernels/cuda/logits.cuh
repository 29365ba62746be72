// SPDX-License-Identifier: Apache-2.0
// Rows of logits, each by a block of threads, and sums of losses: shared by the head as one op and
// in parts. With one shard both add the exponentials of a row in the same order.
#pragma once

#include "kernels/cuda/kernel.cuh"

enum { OT_LOGIT_THREADS = 512 };

// A cap of 0: none.
template <class R>
static __device__ __forceinline__ R ot_capped_logit(R logit, R cap) {
  return cap > 0 ? cap * tanh(logit / cap) : logit;
}

template <class R>
static __device__ __forceinline__ R ot_cap_slope(R logit, R cap) {
  return cap > 0 ? (cap - logit) * (cap + logit) / (cap * cap) : (R)1;
}

// The largest capped logit, NaN ignored; the same in all threads. `most` [OT_LOGIT_THREADS / 32] in
// shared memory.
template <class R>
static __device__ __forceinline__ R ot_largest_logit(const R *row, int64_t V, R cap, R *most) {
  R largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < V; i += OT_LOGIT_THREADS) {
    const R x = ot_capped_logit(row[i], cap);
    largest = x > largest ? x : largest;
  }
  return ot_block_max<OT_LOGIT_THREADS>(largest, most);
}

// loss += factor * the sum of nats [n], or without `factor` the sum itself; count += targets >= 0.
static __global__ void __launch_bounds__(OT_LOGIT_THREADS)
    ot_add_nats(const double *nats, const int32_t *targets, int64_t n, const double *factor,
                double *loss, double *count) {
  __shared__ double parts[OT_LOGIT_THREADS / 32];
  double sum = 0, unmasked = 0;
  for (int64_t i = threadIdx.x; i < n; i += OT_LOGIT_THREADS) {
    sum += nats[i];
    unmasked += targets[i] >= 0 ? 1 : 0;
  }
  sum = ot_block_sum<OT_LOGIT_THREADS>(sum, parts);
  unmasked = ot_block_sum<OT_LOGIT_THREADS>(unmasked, parts);
  if (threadIdx.x > 0) return;
  *loss += factor ? sum * *factor : sum;
  if (count) *count += unmasked;
}
