// SPDX-License-Identifier: Apache-2.0
// Nonlinearities and gated forms, tile by tile. The tanh form of gelu is x * sigmoid(2 u) with u =
// sqrt(2/pi) (x + 0.044715 x^3). This keeps its relative precision for negative x and has the same
// form as silu: f(x) = x s(z(x)) and f'(x) = s + x s (1 - s) z'(x).
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "kernels/vector_math.h"
#include "ops/activation.h"

static const ot_real gelu_slope = (ot_real)1.59576912160573071176;  // 2 sqrt(2/pi)
static const ot_real gelu_cubic = (ot_real)(1.59576912160573071176 * 0.044715);
static const ot_real half_root = (ot_real)0.70710678118654752440;    // 1 / sqrt 2
static const ot_real normal_peak = (ot_real)0.39894228040143267794;  // 1 / sqrt(2 pi)

// The functions below are always inlined: only then does every compiler vectorise loops over them.

// f(x) and f'(x).
typedef struct slope {
  ot_real value, slope;
} slope;

__attribute__((always_inline)) static inline ot_real gelu_value(ot_real x) {
  return x * (ot_real)0.5 * (1 + OT_KERNEL(ot_erf)(x * half_root));
}

__attribute__((always_inline)) static inline slope gelu_slope_of(ot_real x) {
  const ot_real below = (ot_real)0.5 * (1 + OT_KERNEL(ot_erf)(x * half_root));
  const ot_real density = normal_peak * OT_KERNEL(ot_exp)((ot_real)-0.5 * x * x);
  return (slope){x * below, below + x * density};
}

// s = sigmoid(z) and 1 - s, each with full relative precision: computing 1 - s would cancel for s
// near 1.
typedef struct sigmoid {
  ot_real value, rest;
} sigmoid;

__attribute__((always_inline)) static inline sigmoid sigmoid_of(ot_real z) {
  // Within the limits 2^exponent is a normal number; at the lower one s stays at exp(-limit)
  // instead of 0. This order of comparisons is one instruction each and propagates NaN.
  const ot_real limit = sizeof(ot_real) == sizeof(double) ? 700 : 87;
  const ot_real above = -limit > z ? -limit : z;
  const ot_real within = limit < above ? limit : above;
  const OT_KERNEL(ot_exp_parts) parts = OT_KERNEL(ot_exp_reduce)(-within);
  const ot_real power = OT_KERNEL(ot_power_of_two)((int32_t)parts.exponent);
  const ot_real e = power + power * parts.em1;
  const ot_real s = 1 / (1 + e);
  return (sigmoid){s, e * s};
}

__attribute__((always_inline)) static inline ot_real gelu_tanh_value(ot_real x) {
  return x * sigmoid_of(x * (gelu_slope + gelu_cubic * x * x)).value;
}

__attribute__((always_inline)) static inline slope gelu_tanh_slope_of(ot_real x) {
  const sigmoid s = sigmoid_of(x * (gelu_slope + gelu_cubic * x * x));
  const ot_real inner = gelu_slope + 3 * gelu_cubic * x * x;
  return (slope){x * s.value, s.value * (1 + x * s.rest * inner)};
}

__attribute__((always_inline)) static inline ot_real silu_value(ot_real x) {
  return x * sigmoid_of(x).value;
}

__attribute__((always_inline)) static inline slope silu_slope_of(ot_real x) {
  const sigmoid s = sigmoid_of(x);
  return (slope){x * s.value, s.value * (1 + x * s.rest)};
}

__attribute__((always_inline)) static inline ot_real relu_value(ot_real x) { return x > 0 ? x : 0; }

__attribute__((always_inline)) static inline slope relu_slope_of(ot_real x) {
  return (slope){x > 0 ? x : 0, x > 0 ? 1 : 0};
}

// ---- tiles: one loop from memory to memory, so that arithmetic hides memory latency ----

typedef ot_real (*value_function)(ot_real x);
typedef slope (*slope_function)(ot_real x);

// Elements [0, n) of the operands of an op; only the gated forms use `up`, `d_up` and `scale`.
typedef struct tile {
  const ot_real *dy, *x, *up;
  const ot_real *scale;  // of the row, or null
  ot_real *out, *d_up;
  int64_t n;
} tile;

// Inlined first, with f known: otherwise results of f that are structs stay in memory and the loops
// are not vectorised (gcc 12).
__attribute__((always_inline)) static inline void map_values(value_function f, const tile *t) {
  const ot_real *const x = t->x;
  ot_real *const out = t->out;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) out[i] = f(x[i]);
}

__attribute__((always_inline)) static inline void map_slopes(slope_function f, const tile *t) {
  const ot_real *const dy = t->dy;
  const ot_real *const x = t->x;
  ot_real *const out = t->out;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) out[i] = dy[i] * f(x[i]).slope;
}

__attribute__((always_inline)) static inline void map_gated_values(value_function f,
                                                                   const tile *t) {
  const ot_real *const gate = t->x;
  const ot_real *const up = t->up;
  ot_real *const out = t->out;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) out[i] = f(gate[i]) * up[i];
}

__attribute__((always_inline)) static inline void map_gated_slopes(slope_function f,
                                                                   const tile *t) {
  const ot_real *const dy = t->dy;
  const ot_real *const gate = t->x;
  const ot_real *const up = t->up;
  ot_real *const d_gate = t->out;
  ot_real *const d_up = t->d_up;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) {
    const slope s = f(gate[i]);
    d_gate[i] = dy[i] * up[i] * s.slope;
    d_up[i] = dy[i] * s.value;
  }
}

// ---- the clamped gated form ----

// This order of the comparison propagates NaN.
__attribute__((always_inline)) static inline ot_real at_most(ot_real x, ot_real limit) {
  return limit < x ? limit : x;
}

// The factor of the gate: up clamped to the limits, plus 1.
static void bound_up(const ot_op_attributes *a, const ot_real *up, int64_t n, ot_real *bounded) {
  const ot_real limit = (ot_real)a->glu_limit;
  for (int64_t i = 0; i < n; i++) bounded[i] = 1 - at_most(-at_most(up[i], limit), limit);
}

// `up` of the tile is already clamped.
static void map_clamped_values(const ot_op_attributes *a, const tile *t) {
  const ot_real alpha = (ot_real)a->glu_alpha, limit = (ot_real)a->glu_limit;
  const ot_real *const gate = t->x;
  const ot_real *const up = t->up;
  ot_real *const out = t->out;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) {
    const ot_real g = at_most(gate[i], limit);
    out[i] = g * sigmoid_of(alpha * g).value * up[i];
  }
}

static void map_clamped_slopes(const ot_op_attributes *a, const tile *t) {
  const ot_real alpha = (ot_real)a->glu_alpha, limit = (ot_real)a->glu_limit;
  const ot_real *const dy = t->dy;
  const ot_real *const gate = t->x;
  const ot_real *const up = t->up;
  ot_real *const d_gate = t->out;
  ot_real *const d_up = t->d_up;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) {
    const ot_real g = at_most(gate[i], limit);
    const sigmoid s = sigmoid_of(alpha * g);
    const ot_real rise = s.value * (1 + alpha * g * s.rest);
    d_gate[i] = gate[i] > limit ? 0 : dy[i] * up[i] * rise;
    d_up[i] = dy[i] * g * s.value;
  }
}

// Clamped elements of `up` have no gradient.
static void clear_bounded(const ot_op_attributes *a, const ot_real *up, const tile *t) {
  const ot_real limit = (ot_real)a->glu_limit;
  for (int64_t i = 0; i < t->n; i++) {
    if (up[i] > limit || up[i] < -limit) t->d_up[i] = 0;
  }
}

// Not inlined, like map_gated: the forward op and the gradient that writes its output again run the
// same instructions, for the same bits.
__attribute__((noinline)) static void map_plain(const ot_op_attributes *a, const tile *t) {
  switch (a->activation) {
    case OT_ACTIVATION_GELU:
      map_values(gelu_value, t);
      break;
    case OT_ACTIVATION_GELU_TANH:
      map_values(gelu_tanh_value, t);
      break;
    case OT_ACTIVATION_SILU:
      map_values(silu_value, t);
      break;
    case OT_ACTIVATION_RELU:
      map_values(relu_value, t);
      break;
  }
}

// y of elements [first, first + n), whose x is given.
static void write_values(const ot_kernel_call *call, const ot_tensor *y, const ot_real *x,
                         int64_t first, int64_t n) {
  ot_real scratch[OT_TILE];
  const tile t = {.x = x, .out = ot_tile_out(y, first, scratch), .n = n};
  map_plain(call->attributes, &t);
  ot_tile_done(y, first, t.out, n);
}

static void activation_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real scratch[OT_TILE];
  const ot_real *const x = ot_tile_in(&call->in[0], first, n, scratch);
  write_values(call, &call->out[0], x, first, n);
}

static void activation(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), activation_tile);
}

static void activation_grad_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real dy_scratch[OT_TILE];
  ot_real x_scratch[OT_TILE];
  ot_real dx_scratch[OT_TILE];
  const tile t = {.dy = ot_tile_in(&call->in[0], first, n, dy_scratch),
                  .x = ot_tile_in(&call->in[1], first, n, x_scratch),
                  .out = ot_tile_out(&call->out[0], first, dx_scratch),
                  .n = n};
  switch (call->attributes->activation) {
    case OT_ACTIVATION_GELU:
      map_slopes(gelu_slope_of, &t);
      break;
    case OT_ACTIVATION_GELU_TANH:
      map_slopes(gelu_tanh_slope_of, &t);
      break;
    case OT_ACTIVATION_SILU:
      map_slopes(silu_slope_of, &t);
      break;
    case OT_ACTIVATION_RELU:
      map_slopes(relu_slope_of, &t);
      break;
  }
  ot_tile_done(&call->out[0], first, t.out, n);
  if (call->out[1].data) write_values(call, &call->out[1], t.x, first, n);
}

static void activation_grad(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), activation_grad_tile);
}

__attribute__((noinline)) static void map_gated(const ot_op_attributes *a, const tile *t) {
  if (a->glu_limit > 0) {
    map_clamped_values(a, t);
    return;
  }
  switch (a->activation) {
    case OT_ACTIVATION_GELU:
      map_gated_values(gelu_value, t);
      break;
    case OT_ACTIVATION_GELU_TANH:
      map_gated_values(gelu_tanh_value, t);
      break;
    case OT_ACTIVATION_SILU:
      map_gated_values(silu_value, t);
      break;
    case OT_ACTIVATION_RELU:
      map_gated_values(relu_value, t);
      break;
  }
}

static void map_gated_gradients(const ot_op_attributes *a, const tile *t) {
  if (a->glu_limit > 0) {
    map_clamped_slopes(a, t);
    return;
  }
  switch (a->activation) {
    case OT_ACTIVATION_GELU:
      map_gated_slopes(gelu_slope_of, t);
      break;
    case OT_ACTIVATION_GELU_TANH:
      map_gated_slopes(gelu_tanh_slope_of, t);
      break;
    case OT_ACTIVATION_SILU:
      map_gated_slopes(silu_slope_of, t);
      break;
    case OT_ACTIVATION_RELU:
      map_gated_slopes(relu_slope_of, t);
      break;
  }
}

// The scale of row `row`, or null.
static const ot_real *scale_of(const ot_tensor *scale, int64_t row) {
  return scale->data ? (const ot_real *)scale->data + row : NULL;
}

// y of a tile whose `up` is already clamped, from element `first` on.
static void write_gated(const ot_op_attributes *a, const ot_tensor *y, int64_t first, tile t) {
  ot_real scratch[OT_TILE];
  t.out = ot_tile_out(y, first, scratch);
  map_gated(a, &t);
  for (int64_t i = 0; i < t.n && t.scale; i++) t.out[i] *= *t.scale;
  ot_tile_done(y, first, t.out, t.n);
}

// Columns [column, column + n) of row `row`.
static void glu_tile(const ot_kernel_call *call, int64_t row, int64_t column, int64_t n) {
  ot_real scratch[2][OT_TILE], bounded[OT_TILE];
  const bool bounds = call->attributes->glu_limit > 0;
  const int64_t columns = call->out[0].type.dim[1];
  const int64_t gate = row * 2 * columns + column;
  tile t = {.x = ot_tile_in(&call->in[0], gate, n, scratch[0]),
            .up = ot_tile_in(&call->in[0], gate + columns, n, scratch[1]),
            .scale = scale_of(&call->in[1], row),
            .n = n};
  if (bounds) bound_up(call->attributes, t.up, n, bounded);
  if (bounds) t.up = bounded;
  write_gated(call->attributes, &call->out[0], row * columns + column, t);
}

// Multiplies the gradients of a tile by the scale. d_up is dy f(gate) so far, so its product with
// up is the tile's contribution to the gradient of the scale.
static void scale_gradient(const ot_kernel_call *call, int64_t row, int64_t column, const tile *t) {
  const ot_real scale = *t->scale;
  ot_real *const dscale = (ot_real *)call->out[1].data + row;
  ot_real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < t->n; i++) sum += t->d_up[i] * t->up[i];
  *dscale = column == 0 ? sum : *dscale + sum;
  for (int64_t i = 0; i < t->n; i++) {
    t->out[i] *= scale;
    t->d_up[i] *= scale;
  }
}

static void glu_grad_tile(const ot_kernel_call *call, int64_t row, int64_t column, int64_t n) {
  ot_real scratch[5][OT_TILE], bounded[OT_TILE];
  const bool bounds = call->attributes->glu_limit > 0;
  const ot_tensor *const dx = &call->out[0];
  const int64_t columns = call->in[0].type.dim[1];
  const int64_t gate = row * 2 * columns + column;
  tile t = {.dy = ot_tile_in(&call->in[0], row * columns + column, n, scratch[0]),
            .x = ot_tile_in(&call->in[1], gate, n, scratch[1]),
            .up = ot_tile_in(&call->in[1], gate + columns, n, scratch[2]),
            .out = ot_tile_out(dx, gate, scratch[3]),
            .d_up = ot_tile_out(dx, gate + columns, scratch[4]),
            .scale = scale_of(&call->in[2], row),
            .n = n};
  const ot_real *const up = t.up;
  if (bounds) bound_up(call->attributes, up, n, bounded);
  if (bounds) t.up = bounded;
  map_gated_gradients(call->attributes, &t);
  if (t.scale) scale_gradient(call, row, column, &t);
  if (bounds) clear_bounded(call->attributes, up, &t);
  ot_tile_done(dx, gate, t.out, n);
  ot_tile_done(dx, gate + columns, t.d_up, n);
  if (!call->out[2].data) return;
  write_gated(call->attributes, &call->out[2], row * columns + column, t);
}

typedef void (*row_tile_function)(const ot_kernel_call *call, int64_t row, int64_t column,
                                  int64_t n);

static void for_row_tiles(const ot_kernel_call *call, int64_t rows, int64_t columns,
                          row_tile_function run) {
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t c = 0; c < columns; c += OT_TILE) {
      run(call, row, c, columns - c < OT_TILE ? columns - c : OT_TILE);
    }
  }
}

// Number of `rows` that are not padding.
static int64_t used_rows(const ot_tensor *offsets, int64_t rows) {
  return offsets->data ? ((const int32_t *)offsets->data)[offsets->type.dim[0] - 1] : rows;
}

// Zeroes the rows from `used` on.
static void clear_rows(const ot_tensor *out, int64_t used) {
  if (!out->data) return;
  const int64_t bytes =
      (out->type.rank > 1 ? out->type.dim[1] : 1) * ot_dtype_bytes(out->type.dtype);
  memset((char *)out->data + used * bytes, 0, (size_t)((out->type.dim[0] - used) * bytes));
}

static void glu(const ot_kernel_call *call) {
  const ot_tensor_type *const y = &call->out[0].type;
  const int64_t used = used_rows(&call->in[2], y->dim[0]);
  for_row_tiles(call, used, y->dim[1], glu_tile);
  clear_rows(&call->out[0], used);
}

static void glu_grad(const ot_kernel_call *call) {
  const ot_tensor_type *const dy = &call->in[0].type;
  const int64_t used = used_rows(&call->in[3], dy->dim[0]);
  for_row_tiles(call, used, dy->dim[1], glu_grad_tile);
  for (int i = 0; i < 3; i++) clear_rows(&call->out[i], used);
}

const ot_kernel_entry OT_KERNEL(ot_activation_cpu)[] = {
    {OT_OP_ACTIVATION, activation},
    {OT_OP_ACTIVATION_GRAD, activation_grad},
    {OT_OP_GLU, glu},
    {OT_OP_GLU_GRAD, glu_grad},
    {OT_OP_COUNT, NULL},
};
