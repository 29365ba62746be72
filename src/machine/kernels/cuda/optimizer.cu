// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW: one pass over memory each; sums in float64, by blocks into the
// workspace and then in a fixed order. One launch runs the tensors of many calls, with the blocks
// and so the bits that each has alone.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "workspace/workspace.h"
#include "ops/optimizer.h"
}

namespace {

enum { THREADS = 256, MOST_PARTS = OT_JOINED_MOST };

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

// For each part: totals[k] (+)= sum over its blocks of sums[block][k].
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
  bool fours;  // elements are moved four at a time
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
  sums[0] = fma((double)d, (double)d, sums[0]);
  sums[1] = fma((double)w, (double)w, sums[1]);
}

// Four neighbouring elements as they are stored, bf16 in two words; `vector` counts fours.
struct stored_four {
  uint4 words;

  __device__ __forceinline__ void load(const void *from, ot_dtype dtype, int64_t vector) {
    if (dtype == OT_BF16) {
      const uint2 pairs = ((const uint2 *)from)[vector];
      words = uint4{pairs.x, pairs.y, 0, 0};
    } else {
      words = ((const uint4 *)from)[vector];
    }
  }
  __device__ __forceinline__ void widen(ot_dtype dtype, float (&to)[4]) const {
    const bool pairs = dtype == OT_BF16;
    to[0] = __uint_as_float(pairs ? words.x << 16 : words.x);
    to[1] = __uint_as_float(pairs ? words.x & 0xffff0000u : words.y);
    to[2] = __uint_as_float(pairs ? words.y << 16 : words.z);
    to[3] = __uint_as_float(pairs ? words.y & 0xffff0000u : words.w);
  }
};

__device__ __forceinline__ void store_four(void *to, ot_dtype dtype, int64_t vector,
                                           const float (&from)[4]) {
  if (dtype == OT_BF16) {
    ((uint2 *)to)[vector] = uint2{ot_pack_bf16(from[0], from[1]), ot_pack_bf16(from[2], from[3])};
  } else {
    ((uint4 *)to)[vector] = uint4{__float_as_uint(from[0]), __float_as_uint(from[1]),
                                  __float_as_uint(from[2]), __float_as_uint(from[3])};
  }
}

// All loads are under way before the first element is computed.
__device__ __forceinline__ void add_four(const adamw_parts &all, const adamw_part &t,
                                         int64_t vector, const adamw_step<float> &s,
                                         double (&sums)[2]) {
  const void *const weight = t.master ? t.master : t.p;
  const ot_dtype weight_dtype = t.master ? all.master : all.p;
  stored_four stored[4];
  stored[0].load(t.g, all.g, vector);
  stored[1].load(t.m, all.m, vector);
  stored[2].load(t.v, all.v, vector);
  stored[3].load(weight, weight_dtype, vector);
  float g[4], m[4], v[4], w[4];
  stored[0].widen(all.g, g);
  stored[1].widen(all.m, m);
  stored[2].widen(all.v, v);
  stored[3].widen(weight_dtype, w);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float d = s.update(g[k], &m[k], &v[k], &w[k]);
    sums[0] = fma((double)d, (double)d, sums[0]);
    sums[1] = fma((double)w[k], (double)w[k], sums[1]);
  }
  store_four(t.m, all.m, vector, m);
  store_four(t.v, all.v, vector, v);
  store_four(t.p, all.p, vector, w);
  if (t.master) store_four(t.master, all.master, vector, w);
}

// Nothing is updated if the clip factor is not finite. A thread has every step-th four of elements,
// whether or not they are moved at once, so that sums do not depend on addresses. Addresses are
// read again for each vector: in registers they would cost a block of a multiprocessor.
template <class R>
__global__ void __launch_bounds__(THREADS, OT_LEAST_BLOCKS) adamw_kernel(adamw_parts parts) {
  __shared__ double shared[THREADS / 32];
  const int number = parts.blocks.part_of(blockIdx.x);
  const part_range range(parts.blocks, number);
  const adamw_part &part = parts.part[number];
  const int64_t n = part.n;
  const double factor = part.scalars[OT_SCALAR_CLIP_FACTOR];
  const adamw_step<R> step(part.scalars, part.settings);
  double mine[2] = {0, 0};
  if (factor - factor == 0) {
    int64_t v = range.begin;
    if constexpr (sizeof(R) == 4) {
      for (; part.fours && v < n / 4; v += range.step) {
        int again = number;
        ot_forget(again);
        add_four(parts, parts.part[again], v, step, mine);
      }
    }
    for (; 4 * v < n; v += range.step) {
      for (int64_t i = 4 * v; i < 4 * v + 4 && i < n; i++) {
        int again = number;
        ot_forget(again);
        add_element(adamw_tensors<R>(parts, again), i, step, mine);
      }
    }
  }
  const double update = ot_block_sum<THREADS>(mine[0], shared);
  const double weight = ot_block_sum<THREADS>(mine[1], shared);
  if (threadIdx.x > 0) return;
  part.sums[2 * range.block] = update;
  part.sums[2 * range.block + 1] = weight;
}

// True if vectors of four elements fit the addresses, and the types are fp32 and bf16.
template <class R>
bool moves_fours(const ot_kernel_call *call) {
  const ot_tensor *const all[] = {&call->in[0], &call->out[0], &call->out[1], &call->out[2],
                                  &call->out[3]};
  bool fits = sizeof(R) == 4;
  for (const ot_tensor *tensor : all) {
    fits = fits && (uintptr_t)tensor->data % 16 == 0;
    fits = fits && (!tensor->data || ot_dtype_bytes(tensor->type.dtype) <= 4);
  }
  return fits;
}

template <class R>
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
          moves_fours<R>(call),
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
    parts.part[i] = adamw_part_of<R>(&calls[i]);
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
