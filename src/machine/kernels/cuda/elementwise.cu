// SPDX-License-Identifier: Apache-2.0
// Additions, gates, maxima, conversions and zeroing: one thread per vector of elements.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

namespace {

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
    OT_LAUNCH((add_kernel<R, S, N>), ot_blocks(n, THREADS * N), THREADS, 0, ot_cuda_stream_of(call),
              (const S *)in[0].data, (const S *)in[1].data, (S *)out[0].data, n);
  });
}

// ---- bias and gate ----

// y = x + (residual + bias), either of which may be absent; y may be x.
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS)
    bias_kernel(const S *x, ot_any<R> bias, const S *residual, S *y, int64_t n, int64_t columns) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= n) return;
  R sum[N], more[N] = {}, b[N] = {};
  ot_load(x + i, sum);
  if (residual) ot_load(residual + i, more);
  if (bias.data) ot_load_any(bias, i % columns, b);
#pragma unroll
  for (int k = 0; k < N; k++) sum[k] += more[k] + b[k];
  ot_store(y + i, sum);
}

template <class R>
static void bias(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t n = ot_type_elements(&in[0].type), columns = in[0].type.dim[1];
  const void *const all[] = {in[0].data, in[1].data, in[2].data, out[0].data};
  const ot_dtype dtype = in[0].type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 4), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    OT_LAUNCH((bias_kernel<R, S, N>), ot_blocks(n, THREADS * N), THREADS, 0,
              ot_cuda_stream_of(call), (const S *)in[0].data, ot_any_of<R>(&in[1]),
              (const S *)in[2].data, (S *)out[0].data, n, columns);
  });
}

static __device__ __forceinline__ float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
static __device__ __forceinline__ double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }

// y may be x.
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS)
    gate_kernel(const S *x, const R *logits, const S *residual, S *y, int64_t n, int64_t columns) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= n) return;
  R value[N], more[N] = {};
  ot_load(x + i, value);
  if (residual) ot_load(residual + i, more);
  const R s = sigmoid_of(logits[i / columns]);
#pragma unroll
  for (int k = 0; k < N; k++) value[k] = more[k] + s * value[k];
  ot_store(y + i, value);
}

template <class R>
static void gate(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t n = ot_type_elements(&in[0].type), columns = in[0].type.dim[1];
  const void *const all[] = {in[0].data, in[2].data, out[0].data};
  const ot_dtype dtype = in[0].type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 3), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    OT_LAUNCH((gate_kernel<R, S, N>), ot_blocks(n, THREADS * N), THREADS, 0,
              ot_cuda_stream_of(call), (const S *)in[0].data, (const R *)in[1].data,
              (const S *)in[2].data, (S *)out[0].data, n, columns);
  });
}

// dx may be dy.
template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS)
    gate_grad_kernel(const S *dy, const S *x, const R *logits, S *dx, R *dlogits, int64_t rows,
                     int columns) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  const int64_t row = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  if (row >= rows) return;
  const R s = sigmoid_of(logits[row]);
  R sum[1] = {0};
  for (int c = threadIdx.x % TEAM * N; c < columns; c += TEAM * N) {
    R d[N], value[N];
    ot_load(dy + row * columns + c, d);
    ot_load(x + row * columns + c, value);
#pragma unroll
    for (int k = 0; k < N; k++) {
      sum[0] = fma(d[k], value[k], sum[0]);
      d[k] *= s;
    }
    ot_store(dx + row * columns + c, d);
  }
  ot_team_sums<TEAM>(sum, parts, 0);
  if (threadIdx.x % TEAM == 0) dlogits[row] = s * (1 - s) * sum[0];
}

template <class R>
static void gate_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t rows = in[0].type.dim[0], columns = in[0].type.dim[1];
  const void *const all[] = {in[0].data, in[1].data, out[0].data};
  const ot_dtype dtype = in[0].type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 3), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    ot_for_teams(columns / N, 4, [&](auto team) {
      constexpr int TEAM = decltype(team)::value;
      OT_LAUNCH((gate_grad_kernel<R, S, N, TEAM>), ot_blocks(rows, OT_ROW_THREADS / TEAM),
                OT_ROW_THREADS, 0, ot_cuda_stream_of(call), (const S *)in[0].data,
                (const S *)in[1].data, (const R *)in[2].data, (S *)out[0].data, (R *)out[1].data,
                rows, (int)columns);
    });
  });
}

// ---- maximum ----

static const unsigned absmax_blocks = 1024;  // at most

// Magnitudes are not negative, so their bits are ordered as they are; `m` is not negative either.
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS)
    absmax_kernel(const S *x, int64_t n, unsigned long long *m) {
  __shared__ R parts[THREADS / 32];
  const R infinity = (R)__int_as_float(0x7f800000);
  R most = 0;
  for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < n;
       i += (int64_t)gridDim.x * THREADS * N) {
    R value[N];
    ot_load(x + i, value);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const R size = value[k] < 0 ? -value[k] : value[k];
      most = size == size ? (size > most ? size : most) : infinity;
    }
  }
  most = ot_block_max<THREADS>(most, parts);
  if (threadIdx.x == 0) atomicMax(m, (unsigned long long)__double_as_longlong((double)most));
}

template <class R>
static void absmax(const ot_kernel_call *call) {
  const ot_tensor *const x = &call->in[0];
  const int64_t n = ot_type_elements(&x->type);
  const void *const all[] = {x->data};
  const ot_dtype dtype = x->type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, n, all, 1), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const unsigned blocks = ot_blocks(n, THREADS * N);
    OT_LAUNCH((absmax_kernel<R, S, N>), blocks < absmax_blocks ? blocks : absmax_blocks, THREADS, 0,
              ot_cuda_stream_of(call), (const S *)x->data, n,
              (unsigned long long *)call->out[0].data);
  });
}

// ---- conversion: exact widening, one rounding when narrowing, for every compute type ----

template <class From, class To, int N>
static __global__ void __launch_bounds__(THREADS) cast_kernel(const From *x, To *y, int64_t n) {
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= n) return;
  const ot_vector<From, N> from = *(const ot_vector<From, N> *)(x + i);
  ot_vector<To, N> to;
#pragma unroll
  for (int k = 0; k < N; k++) ot_narrow(ot_wide(from.at[k]), &to.at[k]);
  *(ot_vector<To, N> *)(y + i) = to;
}

template <class From, class To>
static void cast_from_to(const ot_kernel_call *call, From, To) {
  constexpr int N = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  const ot_tensor *const x = &call->in[0], *const y = &call->out[0];
  const int64_t n = ot_type_elements(&x->type);
  if (n % N == 0 && ((uintptr_t)x->data | (uintptr_t)y->data) % 16 == 0) {
    OT_LAUNCH((cast_kernel<From, To, N>), ot_blocks(n, THREADS * N), THREADS, 0,
              ot_cuda_stream_of(call), (const From *)x->data, (To *)y->data, n);
  } else {
    OT_LAUNCH((cast_kernel<From, To, 1>), ot_blocks(n, THREADS), THREADS, 0,
              ot_cuda_stream_of(call), (const From *)x->data, (To *)y->data, n);
  }
}

// Calls run(T{}) for the type that `dtype` names.
template <class Run>
static void for_type(ot_dtype dtype, Run run) {
  if (dtype == OT_BF16) {
    run(ot_bf16{});
  } else if (dtype == OT_F32) {
    run(float{});
  } else {
    run(double{});
  }
}

static void cast(const ot_kernel_call *call) {
  for_type(call->in[0].type.dtype, [&](auto from) {
    for_type(call->out[0].type.dtype, [&](auto to) { cast_from_to(call, from, to); });
  });
}

static void zero(const ot_kernel_call *call) {
  const ot_tensor *const out = &call->out[0];
  (void)cudaMemsetAsync(out->data, 0, (size_t)ot_type_bytes(&out->type),
                        (cudaStream_t)ot_cuda_stream_of(call));
}

template <class R>
static __global__ void __launch_bounds__(THREADS) inverse_kernel(const double *n, double *y) {
  if (threadIdx.x == 0) y[0] = n[0] > 0 ? 1 / n[0] : 0;
}

template <class R>
static void inverse(const ot_kernel_call *call) {
  OT_LAUNCH(inverse_kernel<R>, 1, 32, 0, ot_cuda_stream_of(call), (const double *)call->in[0].data,
            (double *)call->out[0].data);
}

}  // namespace

extern "C" bool ot_cuda_has_kernels(void) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, inverse_kernel<float>);
  (void)cudaGetLastError();
  return error != cudaErrorNoKernelImageForDevice;
}

extern "C" const ot_kernel_entry ot_elementwise_cuda_f32[] = {{OT_OP_ADD, add<float>},
                                                              {OT_OP_BIAS, bias<float>},
                                                              {OT_OP_GATE, gate<float>},
                                                              {OT_OP_GATE_GRAD, gate_grad<float>},
                                                              {OT_OP_ABSMAX, absmax<float>},
                                                              {OT_OP_CAST, cast},
                                                              {OT_OP_ZERO, zero},
                                                              {OT_OP_INVERSE, inverse<float>},
                                                              {}};

extern "C" const ot_kernel_entry ot_elementwise_cuda_f64[] = {{OT_OP_ADD, add<double>},
                                                              {OT_OP_BIAS, bias<double>},
                                                              {OT_OP_GATE, gate<double>},
                                                              {OT_OP_GATE_GRAD, gate_grad<double>},
                                                              {OT_OP_ABSMAX, absmax<double>},
                                                              {OT_OP_CAST, cast},
                                                              {OT_OP_ZERO, zero},
                                                              {OT_OP_INVERSE, inverse<double>},
                                                              {}};
