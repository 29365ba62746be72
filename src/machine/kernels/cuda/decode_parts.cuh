// SPDX-License-Identifier: Apache-2.0
// Attention of one query per token and head over the slots of a paged cache (flash decoding, Dao et
// al. 2023): a block of the first kernel has OT_DECODE_SLOTS slots and some heads that share a key;
// the second kernel merges these parts. The positions stay on the device, so that blocks without
// visible slots end at once.
#pragma once

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "workspace/cuda_workspace.h"
#include "ops/decode.h"
}

enum { OT_DECODE_THREADS = 256, OT_DECODE_WARPS = OT_DECODE_THREADS / 32 };
enum { OT_DECODE_HEADS = 8 };  // of a block, at most
enum { OT_DECODE_LANES = 8 };  // that compute a score together

// Where the slots of tokens are: those of token b at ot_page_places::row(b, slot) of the cache.
struct ot_page_places {
  const int32_t *sequences, *positions;  // [B]
  const int32_t *pages;                  // [S, count]
  int64_t count;

  __device__ int64_t row(int64_t b, int slot) const {
    const int page = pages[sequences[b] * (int)count + slot / OT_PAGE_SLOTS];
    return (int64_t)page * OT_PAGE_SLOTS + slot % OT_PAGE_SLOTS;
  }
};

// The operands `sequences`, `positions` and `pages` of a call.
static inline ot_page_places ot_page_places_of(const ot_kernel_call *call, int sequences,
                                               int positions, int pages) {
  const ot_tensor *const in = call->in;
  return {(const int32_t *)in[sequences].data, (const int32_t *)in[positions].data,
          (const int32_t *)in[pages].data, in[pages].type.dim[1]};
}

// Head h of token b has its query at element b * query_row + h * key_width, and uses key and value
// h / (H / G) of each slot.
template <class R>
struct ot_decode {
  ot_any<R> queries;
  int64_t query_row;
  int64_t tokens;      // B
  ot_tensor cache;     // [N, 16, row]: G keys from 0 on, G values from first_value on
  ot_page_places at;
  int H, G, key_width, value_width, first_value;
  int window;  // 0: none
  R scale, soft_cap;
  ot_any<R> sinks;  // or null
  int first_sink;
  ot_any<R> o;  // [B, H, value_width]
  R *parts;     // [B, H, parts, 2 + value_width]: largest score, sum, values

  __device__ ot_seen seen(int b) const {
    const int high = at.sequences[b] < 0 ? 0 : at.positions[b] + 1;
    return {window > 0 && window < high ? high - window : 0, high};
  }
  __device__ R *part(int b, int h, int i, int count) const {
    return parts + (((int64_t)b * H + h) * count + i) * (2 + value_width);
  }
};

// The slots [low, high) and heads of a block.
struct ot_decode_block {
  int b, g, head, heads;
  int first, low, high;  // first: of the scores in shared memory
};

template <class R>
static __device__ __forceinline__ ot_decode_block ot_decode_block_of(const ot_decode<R> &d) {
  const int sharing = d.H / d.G, batches = (sharing + OT_DECODE_HEADS - 1) / OT_DECODE_HEADS;
  const int unit = blockIdx.x / batches, done = blockIdx.x % batches * OT_DECODE_HEADS;
  const int b = unit / d.G, g = unit % d.G, left = sharing - done;
  const ot_seen seen = d.seen(b);
  const int first = blockIdx.y * OT_DECODE_SLOTS, end = first + OT_DECODE_SLOTS;
  return {b,
          g,
          g * sharing + done,
          left < OT_DECODE_HEADS ? left : OT_DECODE_HEADS,
          first,
          seen.low > first ? seen.low : first,
          seen.high < end ? seen.high : end};
}

// scores [heads][OT_DECODE_SLOTS] of the queries [heads][key_width], scaled.
template <class R, class S, int N>
static __device__ __forceinline__ void ot_decode_scores(const ot_decode<R> &d,
                                                        const ot_decode_block &k, const R *queries,
                                                        R *scores) {
  constexpr int SLOTS = 32 / OT_DECODE_LANES;  // of a warp at a time
  const int lane = threadIdx.x % OT_DECODE_LANES, of_warp = threadIdx.x % 32 / OT_DECODE_LANES;
  const int64_t row = d.cache.type.dim[2];
  for (int j = k.low + (int)threadIdx.x / 32 * SLOTS; j < k.high; j += OT_DECODE_WARPS * SLOTS) {
    const int slot = j + of_warp;
    const int64_t at = d.at.row(k.b, slot < k.high ? slot : k.low);
    const S *const key = (const S *)d.cache.data + at * row + (int64_t)k.g * d.key_width;
    for (int h = 0; h < k.heads; h++) {
      R sum = 0;
      for (int i = lane * N; i < d.key_width && slot < k.high; i += OT_DECODE_LANES * N) {
        R x[N];
        ot_load(key + i, x);
#pragma unroll
        for (int e = 0; e < N; e++) sum = fma(x[e], queries[h * d.key_width + i + e], sum);
      }
      sum = d.scale * ot_lanes_sum<OT_DECODE_LANES>(sum);
      if (lane > 0 || slot >= k.high) continue;
      scores[h * OT_DECODE_SLOTS + slot - k.first] =
          d.soft_cap > 0 ? ot_capped(sum, d.soft_cap) : sum;
    }
  }
}

// Turns the scores of a head into exp(score - largest); a warp has every OT_DECODE_WARPS-th head.
template <class R>
static __device__ __forceinline__ void ot_decode_exponentiate(const ot_decode<R> &d,
                                                              const ot_decode_block &k, R *scores) {
  const int lane = threadIdx.x % 32;
  for (int h = threadIdx.x / 32; h < k.heads; h += OT_DECODE_WARPS) {
    R *const score = scores + h * OT_DECODE_SLOTS - k.first;
    R largest = -(R)INFINITY, sum = 0;
    for (int j = k.low + lane; j < k.high; j += 32)
      largest = score[j] > largest ? score[j] : largest;
    largest = ot_warp_max(largest);
    for (int j = k.low + lane; j < k.high; j += 32) {
      score[j] = exp(score[j] - largest);
      sum += score[j];
    }
    sum = ot_warp_sum(sum);
    if (lane > 0) continue;
    R *const part = d.part(k.b, k.head + h, blockIdx.y, gridDim.y);
    part[0] = largest;
    part[1] = sum;
  }
}

// Blocks (sequence, key head and batch of its heads; slots).
template <class R, class S, int N>
static __global__ void __launch_bounds__(OT_DECODE_THREADS, OT_LEAST_BLOCKS)
    ot_decode_part_kernel(ot_decode<R> d) {
  OT_DYNAMIC_SHARED(R, queries);
  R *const scores = queries + OT_DECODE_HEADS * d.key_width;
  const ot_decode_block k = ot_decode_block_of(d);
  if (k.low >= k.high) return;
  const int64_t query = k.b * d.query_row + (int64_t)k.head * d.key_width;
  for (int i = threadIdx.x; i < k.heads * d.key_width; i += OT_DECODE_THREADS) {
    queries[i] = d.queries[query + i];
  }
  __syncthreads();
  ot_decode_scores<R, S, N>(d, k, queries, scores);
  __syncthreads();
  ot_decode_exponentiate(d, k, scores);
  __syncthreads();
  const int64_t row = d.cache.type.dim[2];
  const S *const values = (const S *)d.cache.data + d.first_value;
  for (int n = threadIdx.x; n < k.heads * d.value_width; n += OT_DECODE_THREADS) {
    const int h = n / d.value_width, c = n - h * d.value_width;
    const S *const value = values + (int64_t)k.g * d.value_width + c;
    R sum = 0;
    for (int j = k.low, end; j < k.high; j = end) {  // page by page
      end = (j / OT_PAGE_SLOTS + 1) * OT_PAGE_SLOTS;
      if (end > k.high) end = k.high;
      const S *const of_page = value + d.at.row(k.b, j) * row;
      const R *const score = scores + h * OT_DECODE_SLOTS + j - k.first;
#pragma unroll 2
      for (int i = 0; i < end - j; i++) sum = fma(score[i], (R)ot_wide(of_page[i * row]), sum);
    }
    d.part(k.b, k.head + h, blockIdx.y, gridDim.y)[2 + c] = sum;
  }
}

// Blocks of sequences and heads.
template <class R>
static __global__ void __launch_bounds__(OT_DECODE_THREADS)
    ot_decode_merge_kernel(ot_decode<R> d, int parts) {
  __shared__ R shared[OT_DECODE_WARPS];
  const int b = blockIdx.x / d.H, h = blockIdx.x % d.H;
  const ot_seen seen = d.seen(b);
  const int first = seen.low / OT_DECODE_SLOTS;
  const int end = (seen.high + OT_DECODE_SLOTS - 1) / OT_DECODE_SLOTS;
  const R sink = d.sinks.data ? d.sinks[d.first_sink + h] : -(R)INFINITY;
  R largest = sink, sum = 0;
  for (int i = first + (int)threadIdx.x; i < end; i += OT_DECODE_THREADS) {
    const R other = d.part(b, h, i, parts)[0];
    largest = other > largest ? other : largest;
  }
  largest = ot_block_max<OT_DECODE_THREADS>(largest, shared);
  for (int i = first + (int)threadIdx.x; i < end; i += OT_DECODE_THREADS) {
    const R *const part = d.part(b, h, i, parts);
    sum += exp(part[0] - largest) * part[1];
  }
  sum = ot_block_sum<OT_DECODE_THREADS>(sum, shared) + exp(sink - largest);
  for (int c = threadIdx.x; c < d.value_width; c += OT_DECODE_THREADS) {
    R value = 0;
    for (int i = first; i < end; i++) {
      const R *const part = d.part(b, h, i, parts);
      value += exp(part[0] - largest) * part[2 + c];
    }
    d.o.set((int64_t)blockIdx.x * d.value_width + c, seen.high > 0 ? value / sum : (R)0);
  }
}

template <class R>
static void ot_decode_run(const ot_kernel_call *call, const ot_decode<R> &d) {
  const int64_t B = d.tokens, parts = ot_decode_parts(d.at.count * OT_PAGE_SLOTS);
  if (B == 0) return;
  void *const stream = ot_cuda_stream_of(call);
  const int64_t batches = ot_blocks(d.H / d.G, OT_DECODE_HEADS);
  const dim3 grid((unsigned)(B * d.G * batches), (unsigned)parts);
  const size_t shared = OT_DECODE_HEADS * (d.key_width + OT_DECODE_SLOTS) * sizeof(R);
  const ot_dtype dtype = d.cache.type.dtype;
  const int64_t pieces = d.key_width | d.cache.type.dim[2];
  const void *const all[] = {d.cache.data};
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, pieces, all, 1), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    ot_allow_shared(ot_decode_part_kernel<R, S, N>, shared);
    OT_LAUNCH((ot_decode_part_kernel<R, S, N>), grid, OT_DECODE_THREADS, shared, stream, d);
  });
  OT_LAUNCH(ot_decode_merge_kernel<R>, (unsigned)(B * d.H), OT_DECODE_THREADS, 0, stream, d,
            (int)parts);
}
