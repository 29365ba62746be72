// SPDX-License-Identifier: Apache-2.0
// Additions, gates, maxima, conversions and zeroing: one thread per vector of elements.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

enum { THREADS = 256 };

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS)
    add_kernel(const S *a, const S *b, S *y, int64_t n) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= n) return;
  R x[N], more[N];
  ot_load(a + i, x);
  ot_load(b + i, more);
#pragma unroll
  for (int k = 0; k < N; k++) x[k] += more[k];
  ot_store(y + i, x);
}

template <class R>
static void add(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t n = ot_type_elements(&in[0].type);
  const void *const all[] = {in[0].data, in[1].data, out[0].data};
  const ot_dtype dtype = in[0].type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, n, all, 3), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    OT_LAUNCH((add_kernel<R, S, N>), ot_blocks(n, THREADS * N), THREADS, 0,
              ot_cuda_stream_of(call), (const S *)in[0].data, (const S *)in[1].data,
              (S *)out[0].data, n);
  });
}

static void zero(const ot_kernel_call *call) {
  const ot_tensor *const out = &call->out[0];
  (void)cudaMemsetAsync(out->data, 0, (size_t)ot_type_bytes(&out->type),
                        (cudaStream_t)ot_cuda_stream_of(call));
}

template <class R>
static __global__ void __launch_bounds__(THREADS)
    inverse_kernel(const double *n, double *y) {
  if (threadIdx.x == 0) y[0] = n[0] > 0 ? 1 / n[0] : 0;
}

template <class R>
static void inverse(const ot_kernel_call *call) {
  OT_LAUNCH(inverse_kernel<R>, 1, 32, 0, ot_cuda_stream_of(call),
            (const double *)call->in[0].data, (double *)call->out[0].data);
}

extern "C" const ot_kernel_entry ot_elementwise_cuda_f32[] = {
    {OT_OP_ADD, add<float>}, {OT_OP_ZERO, zero}, {OT_OP_INVERSE, inverse<float>}, {}};

extern "C" const ot_kernel_entry ot_elementwise_cuda_f64[] = {
    {OT_OP_ADD, add<double>}, {OT_OP_ZERO, zero}, {OT_OP_INVERSE, inverse<double>}, {}};
