// SPDX-License-Identifier: Apache-2.0
// Scores of one token, for the kernels of routing: all lanes of a warp hold the same.
#pragma once

#include "kernels/cuda/kernel.cuh"

// The expert of a slot, kept or dropped.
static __device__ __forceinline__ int ot_slot_expert(int32_t slot) {
  return slot >= 0 ? slot : -1 - slot;
}

template <class R>
struct ot_row_scores {
  const R *logits;
  R largest;  // of the logits
  R log_sum;  // of the exponentials
  R inverse;  // 1 / the sum of the exponentials relative to the largest
  bool is_softmax;

  __device__ __forceinline__ R softmax(int e) const { return exp(logits[e] - largest) * inverse; }
  __device__ __forceinline__ R operator[](int e) const {
    return is_softmax ? softmax(e) : 1 / (1 + exp(-logits[e]));
  }
};

// All lanes call it. logits [E]
template <class R>
static __device__ __forceinline__ ot_row_scores<R> ot_row_scores_of(const R *logits, int E,
                                                                    bool is_softmax) {
  const int lane = threadIdx.x % 32;
  R largest = logits[0], sum = 0;
  for (int e = lane; e < E; e += 32) largest = logits[e] > largest ? logits[e] : largest;
  largest = ot_warp_max(largest);
  for (int e = lane; e < E; e += 32) sum += exp(logits[e] - largest);
  sum = ot_warp_sum(sum);
  return {logits, largest, largest + log(sum), 1 / sum, is_softmax};
}
