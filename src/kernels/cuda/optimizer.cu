// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW: one pass over memory each; sums in float64, by blocks into the
// workspace and then in a fixed order. One launch runs the tensors of many calls, with the blocks
// and so the bits that each has alone.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/blocks.h"
#include "ops/optimizer.h"
}

namespace {

enum { THREADS = 256, MOST_PARTS = OT_CUDA_JOINED };

// ---- several tensors in one launch: each is a part with blocks of its own ----

// Part i has the blocks from first[i] to before first[i + 1].
struct part_blocks {
  int count, first[MOST_PARTS + 1];

  void add(int64_t elements) {
    first[count + 1] = first[count] + (int)ot_cuda_flat_blocks(elements);
    count++;
  }
  __device__ int part_of(int block) const {
    int part = 0;
    while (block >= first[part + 1]) part++;
    return part;
  }
};

// The elements of a part that a thread has, and its block's sums.
struct part_range {
  int64_t begin, step;
  int block;

  __device__ part_range(const part_blocks &blocks, int part)
      : step((int64_t)(blocks.first[part + 1] - blocks.first[part]) * THREADS),
        block((int)blockIdx.x - blocks.first[part]) {
    begin = (int64_t)block * THREADS + threadIdx.x;
  }
};

// ---- sums of parts ----

// Of each part: totals[k] (+)= sum over its blocks of sums[block][k].
struct part_totals {
  int count, blocks[MOST_PARTS];
  const double *sums[MOST_PARTS];
  double *totals[MOST_PARTS];

  part_totals(const part_blocks &launched, const ot_kernel_call *calls, int output)
      : count(launched.count) {
    for (int i = 0; i < count; i++) {
      blocks[i] = launched.first[i + 1] - launched.first[i];
      sums[i] = (const double *)calls[i].workspace;
      totals[i] = (double *)calls[i].out[output].data;
    }
  }
};

// A block has every gridDim.x-th part, in order.
template <int COUNT>
__global__ void __launch_bounds__(THREADS) total_kernel(part_totals parts, bool accumulate) {
  __shared__ double shared[THREADS / 32];
  for (int part = blockIdx.x; part < parts.count; part += gridDim.x) {
    const double *const sums = parts.sums[part];
    double *const totals = parts.totals[part];
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
      double sum = 0;
      for (int i = threadIdx.x; i < parts.blocks[part]; i += THREADS) {
        sum += sums[(int64_t)i * COUNT + k];
      }
      sum = ot_block_sum<THREADS>(sum, shared);
      if (threadIdx.x == 0) totals[k] = accumulate ? totals[k] + sum : sum;
    }
  }
}

struct squares_parts {
  part_blocks blocks;
  const void *g[MOST_PARTS];
  ot_dtype dtype[MOST_PARTS];
  int64_t n[MOST_PARTS];
  double scale[MOST_PARTS];
  double *sums[MOST_PARTS];
};

// Vector `v` of 16 bytes of g, whose address may not be that of a vector.
template <bool ALIGNED, class S, int N>
__device__ __forceinline__ void load_vector(const S *g, int64_t v, ot_vector<S, N> *to) {
  if constexpr (ALIGNED) {
    *to = ((const ot_vector<S, N> *)g)[v];
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) to->at[e] = g[v * N + e];
  }
}

// The sum of (scale g)^2 over a thread's elements: vectors of 16 bytes, LOADS of them under way at
// a time, each summed by itself, and elements after the last vector.
template <bool ALIGNED, int LOADS, class S>
__device__ __forceinline__ double sum_vectors(const S *g, int64_t n, double scale,
                                              const part_range &mine) {
  constexpr int N = 16 / sizeof(S);
  const int64_t vectors = n / N;
  double sum = 0;
#pragma unroll 1
  for (int64_t v = mine.begin; v < vectors; v += LOADS * mine.step) {
    ot_vector<S, N> at[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
      at[k] = {};
      if (v + k * mine.step < vectors) load_vector<ALIGNED>(g, v + k * mine.step, &at[k]);
    }
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
      double squares = 0;
#pragma unroll
      for (int e = 0; e < N; e++) {
        const double x = scale * (double)ot_wide(at[k].at[e]);
        squares = fma(x, x, squares);
      }
      sum += squares;
    }
  }
#pragma unroll 1
  for (int64_t i = vectors * N + mine.begin; i < n; i += mine.step) {
    const double x = scale * (double)ot_wide(g[i]);
    sum = fma(x, x, sum);
  }
  return sum;
}

template <class S>
__device__ __forceinline__ double thread_squares(const S *g, int64_t n, double scale,
                                                 const part_range &mine) {
  return (uintptr_t)g % 16 == 0 ? sum_vectors<true, 4>(g, n, scale, mine)
                                : sum_vectors<false, 1>(g, n, scale, mine);
}

__global__ void __launch_bounds__(THREADS) squares_kernel(squares_parts parts) {
  __shared__ double shared[THREADS / 32];
  const int part = parts.blocks.part_of(blockIdx.x);
  const part_range mine(parts.blocks, part);
  const void *const g = parts.g[part];
  const int64_t n = parts.n[part];
  const double scale = parts.scale[part];
  double sum;
  if (parts.dtype[part] == OT_BF16) {
    sum = thread_squares((const ot_bf16 *)g, n, scale, mine);
  } else if (parts.dtype[part] == OT_F32) {
    sum = thread_squares((const float *)g, n, scale, mine);
  } else {
    sum = thread_squares((const double *)g, n, scale, mine);
  }
  sum = ot_block_sum<THREADS>(sum, shared);
  if (threadIdx.x == 0) parts.sums[part][mine.block] = sum;
}

// Parts that are added to one sum are added in order, by one block.
void sum_all_squares(const ot_kernel_call *calls, int count) {
  const bool accumulate = calls[0].attributes->accumulate;
  void *const stream = ot_cuda_stream_of(calls);
  squares_parts parts = {};
  for (int i = 0; i < count; i++) {
    parts.g[i] = calls[i].in[0].data;
    parts.dtype[i] = calls[i].in[0].type.dtype;
    parts.n[i] = ot_type_elements(&calls[i].in[0].type);
    parts.scale[i] = calls[i].attributes->scale == 0 ? 1 : calls[i].attributes->scale;
    parts.sums[i] = (double *)calls[i].workspace;
    parts.blocks.add(parts.n[i]);
  }
  OT_LAUNCH(squares_kernel, parts.blocks.first[count], THREADS, 0, stream, parts);
  OT_LAUNCH(total_kernel<1>, accumulate ? 1 : count, THREADS, 0, stream,
            part_totals(parts.blocks, calls, 0), accumulate);
}

void sum_squares(const ot_kernel_call *call) { sum_all_squares(call, 1); }

// ---- clipping ----

// The sum is in order, so that zeros between the terms change nothing.
__global__ void __launch_bounds__(THREADS)
    clip_kernel(const double *s, int64_t n, double clip, double *norm, double *factor) {
  __shared__ double terms[THREADS];
  double total = 0;
  for (int64_t first = 0; first < n; first += THREADS) {
    if (first + threadIdx.x < n) terms[threadIdx.x] = s[first + threadIdx.x];
    __syncthreads();
    const int count = n - first < THREADS ? (int)(n - first) : (int)THREADS;
    for (int i = 0; i < count && threadIdx.x == 0; i++) total += terms[i];
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  const double root = sqrt(total), wanted = clip / (root + 1e-6);
  *norm = root;
  *factor = root - root != 0 ? root - root : clip > 0 && wanted < 1 ? wanted : 1;
}

void clip_factor(const ot_kernel_call *call) {
  OT_LAUNCH(clip_kernel, 1, THREADS, 0, ot_cuda_stream_of(call), (const double *)call->in[0].data,
            call->in[0].type.dim[0], call->attributes->clip, (double *)call->out[0].data,
            (double *)call->out[1].data);
}

// ---- AdamW ----

struct adamw_settings {
  double rate_factor, weight_decay, beta1, beta2, epsilon;
};

// The coefficients of an update in the compute type.
template <class R>
struct adamw_step {
  R gradient_factor, beta1, rest1, beta2, rest2, step, correction2, epsilon, decay;

  __device__ adamw_step(const double *scalars, const adamw_settings &s) {
    const double rate = scalars[OT_SCALAR_LEARNING_RATE] * s.rate_factor;
    gradient_factor = (R)scalars[OT_SCALAR_CLIP_FACTOR];
    beta1 = (R)s.beta1;
    rest1 = (R)(1 - s.beta1);
    beta2 = (R)s.beta2;
    rest2 = (R)(1 - s.beta2);
    step = (R)(rate * scalars[OT_SCALAR_CORRECTION_1]);
    correction2 = (R)scalars[OT_SCALAR_CORRECTION_2];
    epsilon = (R)s.epsilon;
    decay = (R)(rate * s.weight_decay);
  }

  // Returns the step d.
  __device__ R update(R g, R *m, R *v, R *w) const {
    const R gradient = g * gradient_factor;
    *m = beta1 * *m + rest1 * gradient;
    *v = beta2 * *v + rest2 * gradient * gradient;
    const R d = step * *m / (sqrt(*v * correction2) + epsilon) + decay * *w;
    *w -= d;
    return d;
  }
};

struct adamw_part {
  void *g, *p, *m, *v, *master;
  const double *scalars;
  adamw_settings settings;
  int64_t n;
  double *sums;  // [blocks, 2] squares of steps and of new weights
};

struct adamw_parts {
  part_blocks blocks;
  ot_dtype g, p, m, v, master;  // of all parts
  adamw_part part[MOST_PARTS];
};
static_assert(sizeof(adamw_parts) <= 4096, "as much as the arguments of a kernel may take");

template <class R>
struct adamw_tensors {
  ot_any<R> g, p, m, v, master;

  __device__ adamw_tensors(const adamw_parts &all, int part)
      : g{all.part[part].g, all.g},
        p{all.part[part].p, all.p},
        m{all.part[part].m, all.m},
        v{all.part[part].v, all.v},
        master{all.part[part].master, all.master} {}
};

template <class R>
__device__ __forceinline__ void add_element(const adamw_tensors<R> &t, int64_t i,
                                            const adamw_step<R> &s, double (&sums)[2]) {
  const ot_any<R> weight = t.master.data ? t.master : t.p;
  R m = t.m[i], v = t.v[i], w = weight[i];
  const R d = s.update(t.g[i], &m, &v, &w);
  t.m.set(i, m);
  t.v.set(i, v);
  t.p.set(i, w);
  if (t.master.data) t.master.set(i, w);
  sums[0] += (double)d * (double)d;
  sums[1] += (double)w * (double)w;
}

// Nothing is updated if the clip factor is not finite. Addresses are read again for each element:
// in registers they would cost a block of a multiprocessor.
template <class R>
__global__ void __launch_bounds__(THREADS, sizeof(R) == 4 ? 5 : 1) adamw_kernel(adamw_parts parts) {
  __shared__ double shared[THREADS / 32];
  const int number = parts.blocks.part_of(blockIdx.x);
  const part_range range(parts.blocks, number);
  const adamw_part &part = parts.part[number];
  const int64_t n = part.n;
  const double factor = part.scalars[OT_SCALAR_CLIP_FACTOR];
  const adamw_step<R> step(part.scalars, part.settings);
  double mine[2] = {0, 0};
  if (factor - factor == 0) {
    for (int64_t i = range.begin; i < n; i += range.step) {
      int again = number;
      ot_forget(again);
      add_element(adamw_tensors<R>(parts, again), i, step, mine);
    }
  }
  const double update = ot_block_sum<THREADS>(mine[0], shared);
  const double weight = ot_block_sum<THREADS>(mine[1], shared);
  if (threadIdx.x > 0) return;
  part.sums[2 * range.block] = update;
  part.sums[2 * range.block + 1] = weight;
}

adamw_part adamw_part_of(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const out = call->out;
  return {call->in[0].data,
          out[0].data,
          out[1].data,
          out[2].data,
          out[3].data,
          (const double *)call->in[1].data,
          {a->learning_rate_factor, a->weight_decay, a->beta1, a->beta2, a->epsilon},
          ot_type_elements(&call->in[0].type),
          (double *)call->workspace};
}

template <class R>
void adamw_all(const ot_kernel_call *calls, int count) {
  const ot_tensor *const out = calls[0].out;
  void *const stream = ot_cuda_stream_of(calls);
  adamw_parts parts = {{},
                       calls[0].in[0].type.dtype,
                       out[0].type.dtype,
                       out[1].type.dtype,
                       out[2].type.dtype,
                       out[3].type.dtype,
                       {}};
  for (int i = 0; i < count; i++) {
    parts.part[i] = adamw_part_of(&calls[i]);
    parts.blocks.add(parts.part[i].n);
  }
  OT_LAUNCH(adamw_kernel<R>, parts.blocks.first[count], THREADS, 0, stream, parts);
  if (!out[4].data) return;
  OT_LAUNCH(total_kernel<2>, count, THREADS, 0, stream, part_totals(parts.blocks, calls, 4), false);
}

template <class R>
void adamw(const ot_kernel_call *call) {
  adamw_all<R>(call, 1);
}

}  // namespace

extern "C" const ot_kernel_entry ot_optimizer_cuda_f32[] = {{OT_OP_SUM_SQUARES, sum_squares},
                                                            {OT_OP_CLIP_FACTOR, clip_factor},
                                                            {OT_OP_ADAMW, adamw<float>},
                                                            {}};

extern "C" const ot_kernel_entry ot_optimizer_cuda_f64[] = {{OT_OP_SUM_SQUARES, sum_squares},
                                                            {OT_OP_CLIP_FACTOR, clip_factor},
                                                            {OT_OP_ADAMW, adamw<double>},
                                                            {}};

extern "C" const ot_joined_entry ot_optimizer_cuda_joined[] = {
    {OT_OP_SUM_SQUARES, sum_all_squares, sum_all_squares},
    {OT_OP_ADAMW, adamw_all<float>, adamw_all<double>},
    {}};
