// SPDX-License-Identifier: Apache-2.0
// Gradient norm, clipping and AdamW: one pass over memory each; sums in float64, by blocks into the
// workspace and then in a fixed order.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/blocks.h"
#include "ops/optimizer.h"
}

namespace {

enum { THREADS = 256, WIDTH = 4 };

// ---- sums of parts ----

// totals[k] (+)= sum over parts of sums[part][k], k < COUNT, by one block.
template <int COUNT>
__global__ void __launch_bounds__(THREADS)
    total_kernel(const double *sums, int parts, double *totals, bool accumulate) {
  __shared__ double shared[THREADS / 32];
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    double sum = 0;
    for (int i = threadIdx.x; i < parts; i += THREADS) sum += sums[(int64_t)i * COUNT + k];
    sum = ot_block_sum<THREADS>(sum, shared);
    if (threadIdx.x == 0) totals[k] = accumulate ? totals[k] + sum : sum;
  }
}

template <class R>
__global__ void __launch_bounds__(THREADS)
    squares_kernel(ot_any<R> g, int64_t n, double *sums) {
  __shared__ double shared[THREADS / 32];
  double sum = 0;
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
    const double x = (double)g[i];
    sum += x * x;
  }
  sum = ot_block_sum<THREADS>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class R>
void sum_squares(const ot_kernel_call *call) {
  const int64_t n = ot_type_elements(&call->in[0].type);
  const int parts = (int)ot_cuda_flat_blocks(n);
  double *const sums = (double *)call->workspace;
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(squares_kernel<R>, parts, THREADS, 0, stream, ot_any_of<R>(&call->in[0]), n, sums);
  OT_LAUNCH(total_kernel<1>, 1, THREADS, 0, stream, (const double *)sums, parts,
            (double *)call->out[0].data, call->attributes->accumulate);
}

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

template <class R>
struct adamw_tensors {
  ot_any<R> g, p, m, v, master;
  int64_t n;
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

// sums[block] [2]: squares of steps and of new weights. Nothing is updated if the clip factor is
// not finite.
template <class R>
__global__ void __launch_bounds__(THREADS)
    adamw_kernel(adamw_tensors<R> t, const double *scalars, adamw_settings settings,
                 double *sums) {
  __shared__ double shared[THREADS / 32];
  const double factor = scalars[OT_SCALAR_CLIP_FACTOR];
  const adamw_step<R> step(scalars, settings);
  double mine[2] = {0, 0};
  const int64_t stride = (int64_t)gridDim.x * THREADS;
  if (factor - factor == 0) {
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < t.n; i += stride) {
      add_element(t, i, step, mine);
    }
  }
  const double update = ot_block_sum<THREADS>(mine[0], shared);
  const double weight = ot_block_sum<THREADS>(mine[1], shared);
  if (threadIdx.x > 0) return;
  sums[2 * blockIdx.x] = update;
  sums[2 * blockIdx.x + 1] = weight;
}

template <class R>
void adamw(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const out = call->out;
  const adamw_settings settings = {a->learning_rate_factor, a->weight_decay, a->beta1, a->beta2,
                                   a->epsilon};
  const int64_t n = ot_type_elements(&call->in[0].type);
  const adamw_tensors<R> tensors = {ot_any_of<R>(&call->in[0]), ot_any_of<R>(&out[0]),
                                    ot_any_of<R>(&out[1]),      ot_any_of<R>(&out[2]),
                                    ot_any_of<R>(&out[3]),      n};
  const int parts = (int)ot_cuda_flat_blocks(n);
  double *const sums = (double *)call->workspace;
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(adamw_kernel<R>, parts, THREADS, 0, stream, tensors,
            (const double *)call->in[1].data, settings, sums);
  if (!out[4].data) return;
  OT_LAUNCH(total_kernel<2>, 1, THREADS, 0, stream, (const double *)sums, parts,
            (double *)out[4].data, false);
}

}  // namespace

extern "C" const ot_kernel_entry ot_optimizer_cuda_f32[] = {{OT_OP_SUM_SQUARES, sum_squares<float>},
                                                            {OT_OP_CLIP_FACTOR, clip_factor},
                                                            {OT_OP_ADAMW, adamw<float>},
                                                            {}};

extern "C" const ot_kernel_entry ot_optimizer_cuda_f64[] = {
    {OT_OP_SUM_SQUARES, sum_squares<double>},
    {OT_OP_CLIP_FACTOR, clip_factor},
    {OT_OP_ADAMW, adamw<double>},
    {}};
