// SPDX-License-Identifier: Apache-2.0
// Rows of logits in the compute type, a block of threads a row: what the kernels of the head as one
// op read from them.
#pragma once

#include "kernels/cuda/logits.cuh"

namespace {

enum { THREADS = OT_LOGIT_THREADS };

// Logits of a chunk, [rows, stride], of which each row has V.
template <class R>
struct chunk_logits {
  R *logits;
  int64_t V, stride;
  const int32_t *targets;  // of the chunk's rows
  double cap;              // 0: none
};

// The largest capped logit of a row, NaN ignored, and the sum of exponentials relative to it; the
// same in all threads.
template <class R>
struct row_statistics {
  R largest;
  double sum;
};

template <class R>
__device__ row_statistics<R> read_row(const chunk_logits<R> &c, const R *row, double *parts,
                                      R *most) {
  const R cap = (R)c.cap;
  const R largest = ot_largest_logit(row, c.V, cap, most);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < c.V; i += THREADS) {
    sum += (double)exp(ot_capped_logit(row[i], cap) - largest);
  }
  return {largest, ot_block_sum<THREADS>(sum, parts)};
}

template <class R>
__device__ __forceinline__ double nats_of(const chunk_logits<R> &c, const R *row, int32_t target,
                                          const row_statistics<R> &s) {
  return log(s.sum) + ((double)s.largest - (double)ot_capped_logit(row[target], (R)c.cap));
}

// The lowest id after `last` whose capped logit is `value`; INT32_MAX: none.
template <class R>
__device__ int32_t lowest_of(const R *row, int64_t V, R cap, R value, int64_t last) {
  __shared__ int32_t lowest;
  if (threadIdx.x == 0) lowest = INT32_MAX;
  __syncthreads();
  for (int64_t id = threadIdx.x; id < V; id += THREADS) {
    if (id <= last || ot_capped_logit(row[id], cap) != value) continue;
    atomicMin(&lowest, (int32_t)id);
    break;
  }
  __syncthreads();
  const int32_t found = lowest;
  __syncthreads();
  return found;
}

}  // namespace
