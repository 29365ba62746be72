// SPDX-License-Identifier: Apache-2.0
// Sums over ranks: one thread per vector of elements, which it reads from every rank in turn.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/rank_sum.h"
}

enum { THREADS = 256 };

// Integers wrap around, and are their own wide and narrow form.
static __device__ __forceinline__ uint32_t ot_wide(uint32_t x) { return x; }
static __device__ __forceinline__ uint64_t ot_wide(uint64_t x) { return x; }
static __device__ __forceinline__ void ot_narrow(uint32_t x, uint32_t *to) { *to = x; }
static __device__ __forceinline__ void ot_narrow(uint64_t x, uint64_t *to) { *to = x; }


namespace {

template <class R, class S, int N>
static __device__ __forceinline__ void read(const S *from, R (&to)[N]) {
  const ot_vector<S, N> v = *(const ot_vector<S, N> *)from;
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = (R)ot_wide(v.at[k]);
}

template <class X, class R, int N>
static __device__ __forceinline__ void add(const X *source, bool round, R (&sum)[N]) {
  R x[N];
  read(source, x);
#pragma unroll
  for (int k = 0; k < N; k++) {
    X rounded;
    sum[k] += x[k];
    ot_narrow(sum[k], &rounded);
    if (round) sum[k] = (R)ot_wide(rounded);
  }
}

// X: dtype of the sources; R: of the sum; Y: of the targets; N: elements of a vector.
template <class X, class R, class Y, int N>
static __global__ void __launch_bounds__(THREADS)
    sum_kernel(const __grid_constant__ ot_rank_sum job) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= job.count) return;
  R sum[N];
  read((const X *)job.source[0] + i, sum);
  for (int s = 1; s < job.num_sources; s++) add((const X *)job.source[s] + i, job.round, sum);
  for (int t = 0; t < job.num_targets; t++) {
    Y *const target = (Y *)job.target[t] + i;
    if (job.accumulate) add((const Y *)target, false, sum);
    ot_vector<Y, N> made;
#pragma unroll
    for (int k = 0; k < N; k++) ot_narrow(sum[k], &made.at[k]);
    *(ot_vector<Y, N> *)target = made;
  }
}

static bool is_aligned(const ot_rank_sum *job, int vector) {
  uintptr_t bits = 0;
  for (int i = 0; i < job->num_sources; i++) bits |= (uintptr_t)job->source[i];
  for (int i = 0; i < job->num_targets; i++) bits |= (uintptr_t)job->target[i];
  return bits % 16 == 0 && job->count % vector == 0;
}

template <class X, class R, class Y>
static void launch(void *stream, const ot_rank_sum *job) {
  constexpr int N = 16 / (int)(sizeof(Y) > sizeof(X) ? sizeof(Y) : sizeof(X));
  if (is_aligned(job, N)) {
    OT_LAUNCH((sum_kernel<X, R, Y, N>), ot_blocks(job->count, THREADS * N), THREADS, 0, stream,
              *job);
  } else {
    OT_LAUNCH((sum_kernel<X, R, Y, 1>), ot_blocks(job->count, THREADS), THREADS, 0, stream, *job);
  }
}

// The sum of X is of the type R; the targets are of X, R or bf16.
template <class X, class R>
static void choose_target(void *stream, const ot_rank_sum *job) {
  if (job->target_dtype == job->dtype) {
    launch<X, R, X>(stream, job);
  } else if (job->target_dtype == OT_BF16) {
    launch<X, R, ot_bf16>(stream, job);
  } else {
    launch<X, R, R>(stream, job);
  }
}

}  // namespace

extern "C" void ot_rank_sum_cuda(void *stream, const ot_rank_sum *job) {
  if (job->count == 0) return;
  switch (job->dtype) {
    case OT_BF16:
      if (job->sum == OT_F64) {
        choose_target<ot_bf16, double>(stream, job);
      } else {
        choose_target<ot_bf16, float>(stream, job);
      }
      break;
    case OT_F32:
      choose_target<float, float>(stream, job);
      break;
    case OT_F64:
      choose_target<double, double>(stream, job);
      break;
    case OT_I32:
      launch<uint32_t, uint32_t, uint32_t>(stream, job);
      break;
    default:  // OT_I64
      launch<uint64_t, uint64_t, uint64_t>(stream, job);
  }
}
