// SPDX-License-Identifier: Apache-2.0
// Draws of ids by the law of a row of logits (ops/head_draw.h).
#pragma once

#include "kernels/cuda/head_rows.cuh"
#include "kernels/cuda/philox.cuh"

extern "C" {
#include "ops/head.h"
#include "ops/head_draw.h"
}

namespace {

// The outputs of head_draw for the rows of a chunk.
struct drawn_rows {
  const int64_t *keys;
  uint64_t places, limits;  // keys of OT_DRAW_PLACES and OT_DRAW_LIMITS, for seed 0
  int draws, K;
  int32_t *ids;
  float *weights;  // [rows, K]
  double *logprob, *entropy;
};

// Zeros in the places of a row from `used` on.
__device__ void clear_places(const drawn_rows &d, int64_t r, int used) {
  for (int k = used + (int)threadIdx.x; k < d.K; k += THREADS) {
    d.ids[r * d.K + k] = 0;
    d.weights[r * d.K + k] = 0;
  }
}

// The law of a row: exponentials of its capped logits relative to the largest, as they are added
// up: thread i has the ids of the i-th of THREADS equal shares.
template <class R>
struct row_law {
  const R *row;
  int64_t V, share;
  R cap, largest;

  __device__ double weight(int64_t id) const {
    return (double)exp(ot_capped_logit(row[id], cap) - largest);
  }
};

// starts[i] = sum of the weights before share i; returns that of all. `starts` [2][THREADS] in
// shared memory, of which the first half is the result.
template <class R>
__device__ double add_shares(const row_law<R> &law, double (*starts)[THREADS]) {
  const int i = threadIdx.x;
  const int64_t begin = i * law.share, end = begin + law.share < law.V ? begin + law.share : law.V;
  double own = 0;
  for (int64_t id = begin; id < end; id++) own += law.weight(id);
  starts[0][i] = own;
  int at = 0;
  for (int by = 1; by < THREADS; by *= 2, at = 1 - at) {
    __syncthreads();
    starts[1 - at][i] = starts[at][i] + (i >= by ? starts[at][i - by] : 0);
  }
  __syncthreads();
  const double all = starts[at][THREADS - 1], before = i > 0 ? starts[at][i - 1] : 0;
  __syncthreads();
  starts[0][i] = before;
  __syncthreads();
  return all;
}

// The id in whose weight `place` lies; the last one with a weight where rounding leaves none.
template <class R>
__device__ int32_t id_at(const row_law<R> &law, const double *starts, double place) {
  int low = 0;
  for (int by = THREADS / 2; by > 0; by /= 2) low += starts[low + by] <= place ? by : 0;
  double reached = starts[low];
  int64_t last = 0;
  for (int64_t id = low * law.share; id < law.V; id++) {
    const double weight = law.weight(id);
    reached += weight;
    if (weight > 0) last = id;
    if (reached > place) break;
  }
  return (int32_t)last;
}

// Ids that were drawn, ascending, and how often.
struct row_draws {
  int32_t chosen[OT_DRAWS_MAX + 1], id[OT_DRAWS_MAX + 1], count[OT_DRAWS_MAX + 1];
  bool kept[OT_DRAWS_MAX + 1];
  int num;
};

// Thread j joins the draws that begin with draw j and have its id.
__device__ void count_draws(row_draws &d, int draws) {
  const int j = threadIdx.x;
  if (j < draws && (j == 0 || d.chosen[j] != d.chosen[j - 1])) {
    int at = 0, end = j + 1;
    for (int k = 1; k <= j; k++) at += d.chosen[k] != d.chosen[k - 1];
    while (end < draws && d.chosen[end] == d.chosen[j]) end++;
    d.id[at] = d.chosen[j];
    d.count[at] = end - j;
    if (end == draws) d.num = at + 1;
  }
  __syncthreads();
}

// ot_draws_limit to `most` ids, by a thread for each: who stays with its own count; the rest goes
// to the one that `random`, uniform over 64 bits, falls on.
__device__ void limit_draws(row_draws &d, int most, uint64_t random) {
  const int i = threadIdx.x, num = d.num;
  int above = 0;
  for (int k = 0; k < num && i < num; k++) {
    above += d.count[k] > d.count[i] || (d.count[k] == d.count[i] && k < i);
  }
  if (i < num) d.kept[i] = num <= most || above < most - 1;
  __syncthreads();
  int rest = 0, before = 0;
  for (int k = 0; k < num; k++) {
    if (d.kept[k]) continue;
    rest += d.count[k];
    before += k < i ? d.count[k] : 0;
  }
  const int left = (int)__umul64hi(random, (uint64_t)rest);
  const bool takes = i < num && !d.kept[i] && before <= left && left < before + d.count[i];
  __syncthreads();
  if (takes) d.count[i] = rest;
  if (takes) d.kept[i] = true;
  __syncthreads();
}

template <class R>
__device__ void put_draws(const drawn_rows &to, int64_t r, const row_law<R> &law) {
  __shared__ double starts[2][THREADS];
  __shared__ row_draws d;
  const double all = add_shares(law, starts);
  const int i = threadIdx.x;
  const uint64_t key = (uint64_t)to.keys[r];
  uint32_t word[4];
  if (i < to.draws) {
    ot_philox(key ^ to.places, 0, 0, (uint32_t)i, word);
    d.chosen[i] = id_at(law, starts[0], ((double)i + word[0] * 0x1p-32) / to.draws * all);
  }
  __syncthreads();
  count_draws(d, to.draws);
  ot_philox(key ^ to.limits, 0, 0, 0, word);
  limit_draws(d, to.K, (uint64_t)word[1] << 32 | word[0]);
  int at = 0;
  for (int k = 0; k < i && k < d.num; k++) at += d.kept[k];
  if (i < d.num && d.kept[i]) {
    to.ids[r * to.K + at] = d.id[i];
    to.weights[r * to.K + at] = (float)d.count[i] / (float)to.draws;
  }
  clear_places(to, r, d.num < to.K ? d.num : to.K);
}

// The K most probable ids, the first on ties: each is the largest after the one before it.
template <class R>
__device__ void put_most_probable(const drawn_rows &to, int64_t r, const row_law<R> &law,
                                  double sum) {
  __shared__ R most[THREADS / 32];
  R bound = INFINITY;
  int64_t last = -1;
  for (int k = 0; k < to.K; k++) {
    R best = -INFINITY;
    for (int64_t id = threadIdx.x; id < law.V; id += THREADS) {
      const R x = ot_capped_logit(law.row[id], law.cap);
      if ((x < bound || (x == bound && id > last)) && x > best) best = x;
    }
    best = ot_block_max<THREADS>(best, most);
    last = lowest_of(law.row, law.V, law.cap, best, best == bound ? last : -1);
    bound = best;
    if (threadIdx.x > 0) continue;
    const bool found = last < law.V;  // not where logits are NaN
    to.ids[r * to.K + k] = found ? (int32_t)last : 0;
    to.weights[r * to.K + k] = found ? (float)(law.weight(last) / sum) : 0;
  }
}

template <class R>
__global__ void __launch_bounds__(THREADS, 2) draw_kernel(chunk_logits<R> c, drawn_rows to) {
  __shared__ double parts[THREADS / 32];
  __shared__ R most[THREADS / 32];
  const int64_t r = blockIdx.x;
  const R *const row = c.logits + r * c.stride;
  const int32_t target = c.targets[r];
  const row_statistics<R> s = read_row(c, row, parts, most);
  const row_law<R> law = {row, c.V, (c.V + THREADS - 1) / THREADS, (R)c.cap, s.largest};
  double below = 0;
  for (int64_t id = threadIdx.x; id < c.V; id += THREADS) {
    const R difference = ot_capped_logit(row[id], law.cap) - s.largest;
    if (difference > -INFINITY) below += (double)(exp(difference) * difference);
  }
  below = ot_block_sum<THREADS>(below, parts);
  if (threadIdx.x == 0) {
    to.logprob[r] = target < 0 ? 0 : -nats_of(c, row, target, s);
    to.entropy[r] = target < 0 ? 0 : log(s.sum) - below / s.sum;
  }
  if (target < 0) {
    clear_places(to, r, 0);
  } else if (to.draws > 0) {
    put_draws(to, r, law);
  } else {
    put_most_probable(to, r, law, s.sum);
  }
}

}  // namespace
