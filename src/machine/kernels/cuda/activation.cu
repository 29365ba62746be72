// SPDX-License-Identifier: Apache-2.0
// Nonlinearities and gated forms: a vector of elements a thread. f and f' come from one
// exponential, and the tanh form of gelu is x * sigmoid(2 u), as on the CPU (activation_cpu.c).
//
// A gradient that writes y again must give it the forward kernel's bits: both compute f by the same
// functions.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
}

namespace {

// ---- functions of one number ----

static __device__ __forceinline__ float exp_of(float x) { return expf(x); }
static __device__ __forceinline__ double exp_of(double x) { return exp(x); }
static __device__ __forceinline__ float erf_of(float x) { return erff(x); }
static __device__ __forceinline__ double erf_of(double x) { return erf(x); }

// f(x) and f'(x).
template <class R>
struct slope {
  R value, rise;
};

// s = sigmoid(z) and 1 - s, each with full relative precision.
template <class R>
struct sigmoid {
  R value, rest;
};

// Within the limits exp(-z) is a normal number. This order of comparisons propagates NaN.
template <class R>
static __device__ __forceinline__ sigmoid<R> sigmoid_of(R z) {
  const R limit = sizeof(R) == sizeof(double) ? 700 : 87;
  const R above = -limit > z ? -limit : z;
  const R e = exp_of(-(limit < above ? limit : above));
  const R s = 1 / (1 + e);
  return {s, e * s};
}

template <class R>
static __device__ __forceinline__ slope<R> gelu(R x) {
  const R below = (R)0.5 * (1 + erf_of(x * (R)0.70710678118654752440));
  const R density = (R)0.39894228040143267794 * exp_of((R)-0.5 * x * x);
  return {x * below, fma(x, density, below)};
}

template <class R>
static __device__ __forceinline__ slope<R> gelu_tanh(R x) {
  const R first = (R)1.59576912160573071176;  // 2 sqrt(2/pi)
  const R cubic = (R)(1.59576912160573071176 * 0.044715);
  const sigmoid<R> s = sigmoid_of(x * fma(cubic * x, x, first));
  const R rise = fma(3 * cubic * x, x, first);
  return {x * s.value, s.value * fma(x * s.rest, rise, (R)1)};
}

template <class R>
static __device__ __forceinline__ slope<R> silu(R x) {
  const sigmoid<R> s = sigmoid_of(x);
  return {x * s.value, s.value * fma(x, s.rest, (R)1)};
}

template <class R>
static __device__ __forceinline__ slope<R> relu(R x) {
  return {x > 0 ? x : 0, x > 0 ? (R)1 : (R)0};
}

// Replaces each x by f(x) and sets `rises` to f'(x); one branch for all of them.
template <class R, int N>
static __device__ __forceinline__ void apply(ot_activation f, R (&x)[N], R (&rises)[N]) {
  const auto all = [&](auto of) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      const slope<R> s = of(x[k]);
      x[k] = s.value;
      rises[k] = s.rise;
    }
  };
  if (f == OT_ACTIVATION_SILU) {
    all([](R v) { return silu(v); });
  } else if (f == OT_ACTIVATION_GELU_TANH) {
    all([](R v) { return gelu_tanh(v); });
  } else if (f == OT_ACTIVATION_GELU) {
    all([](R v) { return gelu(v); });
  } else {
    all([](R v) { return relu(v); });
  }
}

// ---- plain ----

template <class R, class S, int N>
static __global__ void __launch_bounds__(OT_ROW_THREADS)
    activation_kernel(ot_activation f, const S *x, S *y, int64_t n) {
  const int64_t i = ((int64_t)blockIdx.x * OT_ROW_THREADS + threadIdx.x) * N;
  if (i >= n) return;
  R value[N], rises[N];
  ot_load(x + i, value);
  apply(f, value, rises);
  ot_store(y + i, value);
}

template <class R>
static void activation(const ot_kernel_call *call) {
  const ot_tensor *const x = &call->in[0], *const y = &call->out[0];
  const int64_t n = ot_type_elements(&x->type);
  const void *const all[] = {x->data, y->data};
  ot_for_storage<R>(x->type.dtype, ot_fits_vectors(x->type.dtype, n, all, 2),
                    [&](auto s, auto width) {
                      using S = decltype(s);
                      constexpr int N = decltype(width)::value;
                      OT_LAUNCH((activation_kernel<R, S, N>), ot_blocks(n, OT_ROW_THREADS * N),
                                OT_ROW_THREADS, 0, ot_cuda_stream_of(call),
                                call->attributes->activation, (const S *)x->data, (S *)y->data, n);
                    });
}

// dx may be dy; y may be absent.
template <class R, class S, int N>
static __global__ void __launch_bounds__(OT_ROW_THREADS)
    activation_grad_kernel(ot_activation f, const S *dy, const S *x, S *dx, S *y, int64_t n) {
  const int64_t i = ((int64_t)blockIdx.x * OT_ROW_THREADS + threadIdx.x) * N;
  if (i >= n) return;
  R d[N], value[N], rises[N];
  ot_load(dy + i, d);
  ot_load(x + i, value);
  apply(f, value, rises);
#pragma unroll
  for (int k = 0; k < N; k++) d[k] *= rises[k];
  ot_store(dx + i, d);
  if (y) ot_store(y + i, value);
}

template <class R>
static void activation_grad(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0], *const x = &call->in[1], *const dx = &call->out[0];
  void *const y = call->out[1].data;
  const int64_t n = ot_type_elements(&x->type);
  const void *const all[] = {dy->data, x->data, dx->data, y};
  ot_for_storage<R>(
      x->type.dtype, ot_fits_vectors(x->type.dtype, n, all, 4), [&](auto s, auto width) {
        using S = decltype(s);
        constexpr int N = decltype(width)::value;
        OT_LAUNCH((activation_grad_kernel<R, S, N>), ot_blocks(n, OT_ROW_THREADS * N),
                  OT_ROW_THREADS, 0, ot_cuda_stream_of(call), call->attributes->activation,
                  (const S *)dy->data, (const S *)x->data, (S *)dx->data, (S *)y, n);
      });
}

// ---- gated: a team of threads a row ----

// The form of a gated op: f, or if limit > 0 the clamped one of slope alpha.
template <class R>
struct gate_form {
  ot_activation f;
  R alpha, limit;
};

template <class R>
static __device__ __forceinline__ R at_most(R x, R limit) {
  return limit < x ? limit : x;
}

// Replaces each gate by f(gate) and sets `rises` to f'(gate); clamps `up`, and sets `free` to 0
// where that has no gradient, else to 1.
template <class R, int N>
static __device__ __forceinline__ void apply_form(const gate_form<R> &form, R (&gate)[N],
                                                  R (&up)[N], R (&rises)[N], R (&free)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) free[k] = 1;
  if (!(form.limit > 0)) {
    apply(form.f, gate, rises);
    return;
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const R g = at_most(gate[k], form.limit);
    const sigmoid<R> s = sigmoid_of(form.alpha * g);
    rises[k] = gate[k] > form.limit ? 0 : s.value * fma(form.alpha * g, s.rest, (R)1);
    gate[k] = g * s.value;
    free[k] = up[k] > form.limit || up[k] < -form.limit ? 0 : 1;
    up[k] = 1 - at_most(-at_most(up[k], form.limit), form.limit);
  }
}

template <class R, class S>
struct glu_operands {
  gate_form<R> form;
  const S *dy, *x;      // [rows, columns], of the gradient; [rows, 2 * columns]
  const R *scale;       // [rows], may be absent
  const int32_t *used;  // rows in use; null: all
  S *y;                 // [rows, columns]; of the gradient, may be absent, and may be dy
  S *dx;                // [rows, 2 * columns], of the gradient
  R *dscale;            // [rows], present with scale
  int64_t rows;
  int columns;
};

// gate = f(gate) * up * scale
template <class R, int N>
static __device__ __forceinline__ void gate_values(R (&gate)[N], const R (&up)[N], R scale) {
#pragma unroll
  for (int k = 0; k < N; k++) gate[k] = gate[k] * up[k] * scale;
}

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS) glu_kernel(glu_operands<R, S> o) {
  const int64_t row = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  if (row >= o.rows) return;
  const bool used = !o.used || row < *o.used;
  const R scale = o.scale && used ? o.scale[row] : 1;
  const S *const x = o.x + row * 2 * o.columns;
  for (int c = threadIdx.x % TEAM * N; c < o.columns; c += TEAM * N) {
    R gate[N] = {}, up[N], rises[N], free[N];
    if (used) {
      ot_load(x + c, gate);
      ot_load(x + o.columns + c, up);
      apply_form(o.form, gate, up, rises, free);
      gate_values(gate, up, scale);
    }
    ot_store(o.y + row * o.columns + c, gate);
  }
}

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS, 3) glu_grad_kernel(glu_operands<R, S> o) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  const int64_t row = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  if (row >= o.rows) return;
  const bool used = !o.used || row < *o.used;
  const R scale = o.scale && used ? o.scale[row] : 1;
  const int64_t at = row * 2 * o.columns;
  R dscale[1] = {0};
  for (int c = threadIdx.x % TEAM * N; c < o.columns; c += TEAM * N) {
    R dy[N] = {}, gate[N] = {}, up[N], rises[N] = {}, free[N];
    if (used) {
      ot_load(o.dy + row * o.columns + c, dy);
      ot_load(o.x + at + c, gate);
      ot_load(o.x + at + o.columns + c, up);
      apply_form(o.form, gate, up, rises, free);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const R d_up = dy[k] * gate[k];
        dscale[0] = fma(d_up, up[k], dscale[0]);
        rises[k] = dy[k] * up[k] * rises[k] * scale;
        dy[k] = free[k] != 0 ? d_up * scale : 0;
      }
      gate_values(gate, up, scale);
    }
    ot_store(o.dx + at + c, rises);
    ot_store(o.dx + at + o.columns + c, dy);
    if (o.y) ot_store(o.y + row * o.columns + c, gate);
  }
  if (!o.scale) return;
  ot_team_sums<TEAM>(dscale, parts, 0);
  if (threadIdx.x % TEAM == 0) o.dscale[row] = dscale[0];
}

// Both ops: dy and dx are null in the forward, y may be absent in the gradient. `x` is followed by
// scale and offsets.
template <class R>
static void run_gated(const ot_kernel_call *call, const ot_tensor *dy, const ot_tensor *x,
                      const ot_tensor *dx, const ot_tensor *y) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const scale = x + 1, *const offsets = x + 2;
  const int64_t rows = x->type.dim[0], columns = x->type.dim[1] / 2;
  const ot_dtype dtype = x->type.dtype;
  const void *const all[] = {dy ? dy->data : NULL, x->data, dx ? dx->data : NULL, y->data};
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 4), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const int32_t *const used = (const int32_t *)offsets->data;
    const glu_operands<R, S> o = {{a->activation, (R)a->glu_alpha, (R)a->glu_limit},
                                  dy ? (const S *)dy->data : NULL,
                                  (const S *)x->data,
                                  (const R *)scale->data,
                                  used ? used + offsets->type.dim[0] - 1 : NULL,
                                  (S *)y->data,
                                  dx ? (S *)dx->data : NULL,
                                  dy ? (R *)call->out[1].data : NULL,
                                  rows,
                                  (int)columns};
    ot_for_teams(columns / N, 4, [&](auto team) {
      constexpr int TEAM = decltype(team)::value;
      const unsigned blocks = ot_blocks(rows, OT_ROW_THREADS / TEAM);
      if (dy) {
        OT_LAUNCH((glu_grad_kernel<R, S, N, TEAM>), blocks, OT_ROW_THREADS, 0,
                  ot_cuda_stream_of(call), o);
      } else {
        OT_LAUNCH((glu_kernel<R, S, N, TEAM>), blocks, OT_ROW_THREADS, 0, ot_cuda_stream_of(call),
                  o);
      }
    });
  });
}

template <class R>
static void glu(const ot_kernel_call *call) {
  run_gated<R>(call, NULL, &call->in[0], NULL, &call->out[0]);
}

template <class R>
static void glu_grad(const ot_kernel_call *call) {
  run_gated<R>(call, &call->in[0], &call->in[1], &call->out[0], &call->out[2]);
}

}  // namespace

extern "C" const ot_kernel_entry ot_activation_cuda_f32[] = {
    {OT_OP_ACTIVATION, activation<float>},
    {OT_OP_ACTIVATION_GRAD, activation_grad<float>},
    {OT_OP_GLU, glu<float>},
    {OT_OP_GLU_GRAD, glu_grad<float>},
    {}};

extern "C" const ot_kernel_entry ot_activation_cuda_f64[] = {
    {OT_OP_ACTIVATION, activation<double>},
    {OT_OP_ACTIVATION_GRAD, activation_grad<double>},
    {OT_OP_GLU, glu<double>},
    {OT_OP_GLU_GRAD, glu_grad<double>},
    {}};
