// SPDX-License-Identifier: Apache-2.0
// Nonlinearities and gated forms, tile by tile. The tanh form of gelu is x * sigmoid(2 u) with
// u = sqrt(2/pi) (x + 0.044715 x^3), which keeps its relative precision for negative x, and shares
// its shape with silu: for both, f(x) = x s(z(x)) and f'(x) = s + x s (1 - s) z'(x).
#include <stddef.h>

#include "ops/activation.h"
#include "ops/tiles.h"
#include "ops/vector_math.h"

static const ot_real gelu_slope = (ot_real)1.59576912160573071176;  // 2 sqrt(2/pi)
static const ot_real gelu_cubic = (ot_real)0.044715;
static const ot_real half_root = (ot_real)0.70710678118654752440;    // 1 / sqrt 2
static const ot_real normal_peak = (ot_real)0.39894228040143267794;  // 1 / sqrt(2 pi)

// f(x) and f'(x).
typedef struct slope {
  ot_real value, slope;
} slope;

static inline ot_real gelu_value(ot_real x) {
  return x * (ot_real)0.5 * (1 + OT_KERNEL(ot_erf)(x * half_root));
}

static inline slope gelu_slope_of(ot_real x) {
  const ot_real below = (ot_real)0.5 * (1 + OT_KERNEL(ot_erf)(x * half_root));
  const ot_real density = normal_peak * OT_KERNEL(ot_exp)((ot_real)-0.5 * x * x);
  return (slope){x * below, below + x * density};
}

// s = sigmoid(z) and 1 - s, each with full relative precision: 1 - s would cancel where s is
// near 1.
typedef struct sigmoid {
  ot_real value, rest;
} sigmoid;

static inline sigmoid sigmoid_of(ot_real z) {
  // Beyond it exp(-z) would overflow; there s stays at exp(-limit) instead of falling to 0.
  const ot_real limit = sizeof(ot_real) == sizeof(double) ? 700 : 87;
  const ot_real e = OT_KERNEL(ot_exp)(z < -limit ? limit : -z);
  const ot_real s = 1 / (1 + e);
  return (sigmoid){s, e * s};
}

static inline ot_real gelu_tanh_value(ot_real x) {
  return x * sigmoid_of(gelu_slope * (x + gelu_cubic * x * x * x)).value;
}

static inline slope gelu_tanh_slope_of(ot_real x) {
  const sigmoid s = sigmoid_of(gelu_slope * (x + gelu_cubic * x * x * x));
  const ot_real inner = gelu_slope * (1 + 3 * gelu_cubic * x * x);
  return (slope){x * s.value, s.value * (1 + x * s.rest * inner)};
}

static inline ot_real silu_value(ot_real x) { return x * sigmoid_of(x).value; }

static inline slope silu_slope_of(ot_real x) {
  const sigmoid s = sigmoid_of(x);
  return (slope){x * s.value, s.value * (1 + x * s.rest)};
}

static inline ot_real relu_value(ot_real x) { return x > 0 ? x : 0; }

static inline slope relu_slope_of(ot_real x) { return (slope){x > 0 ? x : 0, x > 0 ? 1 : 0}; }

// y = f(x)
static inline void values(ot_activation activation, const ot_real *x, ot_real *y, int64_t n) {
  switch (activation) {
    case OT_ACTIVATION_GELU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) y[i] = gelu_value(x[i]);
      return;
    case OT_ACTIVATION_GELU_TANH:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) y[i] = gelu_tanh_value(x[i]);
      return;
    case OT_ACTIVATION_SILU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) y[i] = silu_value(x[i]);
      return;
    case OT_ACTIVATION_RELU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) y[i] = relu_value(x[i]);
      return;
  }
}

// value = f(x), slope = f'(x)
static inline void slopes(ot_activation activation, const ot_real *x, ot_real *value,
                          ot_real *derivative, int64_t n) {
  switch (activation) {
    case OT_ACTIVATION_GELU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        const slope s = gelu_slope_of(x[i]);
        value[i] = s.value;
        derivative[i] = s.slope;
      }
      return;
    case OT_ACTIVATION_GELU_TANH:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        const slope s = gelu_tanh_slope_of(x[i]);
        value[i] = s.value;
        derivative[i] = s.slope;
      }
      return;
    case OT_ACTIVATION_SILU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        const slope s = silu_slope_of(x[i]);
        value[i] = s.value;
        derivative[i] = s.slope;
      }
      return;
    case OT_ACTIVATION_RELU:
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        const slope s = relu_slope_of(x[i]);
        value[i] = s.value;
        derivative[i] = s.slope;
      }
      return;
  }
}

static void activation_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real x_scratch[OT_TILE];
  ot_real y_scratch[OT_TILE];
  const ot_real *const x = ot_tile_in(&call->in[0], first, n, x_scratch);
  ot_real *const y = ot_tile_out(&call->out[0], first, y_scratch);
  values(call->attributes->activation, x, y, n);
  ot_tile_done(&call->out[0], first, y, n);
}

static void activation(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), activation_tile);
}

static void activation_grad_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real dy_scratch[OT_TILE];
  ot_real x_scratch[OT_TILE];
  ot_real dx_scratch[OT_TILE];
  ot_real value[OT_TILE];
  ot_real derivative[OT_TILE];
  const ot_real *const dy = ot_tile_in(&call->in[0], first, n, dy_scratch);
  const ot_real *const x = ot_tile_in(&call->in[1], first, n, x_scratch);
  ot_real *const dx = ot_tile_out(&call->out[0], first, dx_scratch);
  slopes(call->attributes->activation, x, value, derivative, n);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * derivative[i];
  ot_tile_done(&call->out[0], first, dx, n);
}

static void activation_grad(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), activation_grad_tile);
}

static void glu_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[3][OT_TILE];
  ot_real value[OT_TILE];
  const ot_tensor *const y = &call->out[0];
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t gate_first = row * 2 * columns + c;
    const ot_real *const gate = ot_tile_in(&call->in[0], gate_first, n, scratch[0]);
    const ot_real *const up = ot_tile_in(&call->in[0], gate_first + columns, n, scratch[1]);
    ot_real *const to = ot_tile_out(y, row * columns + c, scratch[2]);
    values(call->attributes->activation, gate, value, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = value[i] * up[i];
    ot_tile_done(y, row * columns + c, to, n);
  }
}

static void glu(const ot_kernel_call *call) {
  const int64_t rows = call->out[0].type.dim[0];
  const int64_t columns = call->out[0].type.dim[1];
#pragma omp parallel for num_threads(call->attributes->threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) glu_row(call, row, columns);
}

static void glu_grad_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[5][OT_TILE];
  ot_real value[OT_TILE];
  ot_real derivative[OT_TILE];
  const ot_tensor *const dx = &call->out[0];
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t gate_first = row * 2 * columns + c;
    const int64_t up_first = gate_first + columns;
    const ot_real *const dy = ot_tile_in(&call->in[0], row * columns + c, n, scratch[0]);
    const ot_real *const gate = ot_tile_in(&call->in[1], gate_first, n, scratch[1]);
    const ot_real *const up = ot_tile_in(&call->in[1], up_first, n, scratch[2]);
    ot_real *const d_gate = ot_tile_out(dx, gate_first, scratch[3]);
    ot_real *const d_up = ot_tile_out(dx, up_first, scratch[4]);
    slopes(call->attributes->activation, gate, value, derivative, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      d_gate[i] = dy[i] * up[i] * derivative[i];
      d_up[i] = dy[i] * value[i];
    }
    ot_tile_done(dx, gate_first, d_gate, n);
    ot_tile_done(dx, up_first, d_up, n);
  }
}

static void glu_grad(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(call->attributes->threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) glu_grad_row(call, row, columns);
}

const ot_kernel_entry OT_KERNEL(ot_activation_cpu)[] = {
    {OT_OP_ACTIVATION, activation},
    {OT_OP_ACTIVATION_GRAD, activation_grad},
    {OT_OP_GLU, glu},
    {OT_OP_GLU_GRAD, glu_grad},
    {OT_OP_COUNT, NULL},
};
