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

// The weighted targets of a chunk's rows (ops/head.h): ids and weights [rows, K]; without ids, each
// row has the one target of weight 1.
struct ot_weighted_targets {
  const int32_t *ids;
  const float *weights;
  int K;
};

// The targets of the rows from `first` on; the operands are absent without weights.
static inline ot_weighted_targets ot_weighted_targets_of(const ot_tensor &ids,
                                                         const ot_tensor &weights, int64_t first) {
  if (!ids.data) return {nullptr, nullptr, 1};
  const int64_t K = ids.type.dim[1];
  return {(const int32_t *)ids.data + first * K, (const float *)weights.data + first * K, (int)K};
}

// The targets of one row.
struct ot_row_targets {
  const int32_t *ids;
  const float *weights;
  int K;

  __device__ ot_row_targets(const ot_weighted_targets &t, int64_t row, const int32_t *targets)
      : ids(t.ids ? t.ids + row * t.K : targets + row),
        weights(t.ids ? t.weights + row * t.K : nullptr),
        K(t.K) {}

  __device__ double weight(int k) const { return weights ? (double)weights[k] : 1; }

  __device__ double sum() const {
    double all = 0;
    for (int k = 0; k < K; k++) all += weight(k);
    return all;
  }

  // Whether no earlier place has the same id: equal ids are added up by the first.
  __device__ bool is_first(int k) const {
    for (int j = 0; j < k; j++) {
      if (ids[j] == ids[k]) return false;
    }
    return true;
  }
};

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
