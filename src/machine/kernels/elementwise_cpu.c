// SPDX-License-Identifier: Apache-2.0
// Additions, maxima, conversions and zeroing, tile by tile. Dropout is in dropout_cpu.c.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/largest.h"
#include "kernels/tiles.h"
#include "kernels/vector_math.h"
#include "ops/elementwise.h"

static void add_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  ot_real scratch[3][OT_TILE];
  const ot_real *const a = ot_tile_in(&call->in[0], first, n, scratch[0]);
  const ot_real *const b = ot_tile_in(&call->in[1], first, n, scratch[1]);
  ot_real *const y = ot_tile_out(&call->out[0], first, scratch[2]);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
  ot_tile_done(&call->out[0], first, y, n);
}

static void add(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), add_tile);
}

// The addend of linear: residual + bias, either of which may be absent.
static const ot_real *addend_tile(const ot_kernel_call *call, int64_t row, int64_t column,
                                  int64_t n, ot_real scratch[3][OT_TILE]) {
  const ot_tensor *const bias = &call->in[1];
  const ot_tensor *const residual = &call->in[2];
  const int64_t first = row * call->in[0].type.dim[1] + column;
  if (!bias->data) return residual->data ? ot_tile_in(residual, first, n, scratch[0]) : NULL;
  const ot_real *const b = ot_tile_in(bias, column, n, scratch[1]);
  if (!residual->data) return b;
  const ot_real *const r = ot_tile_in(residual, first, n, scratch[0]);
  ot_real *const sum = scratch[2];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] = r[i] + b[i];
  return sum;
}

static void bias_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[3][OT_TILE];
  ot_real x_scratch[OT_TILE];
  ot_real y_scratch[OT_TILE];
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t first = row * columns + c;
    const ot_real *const addend = addend_tile(call, row, c, n, scratch);
    const ot_real *const x = ot_tile_in(&call->in[0], first, n, x_scratch);
    ot_real *const y = ot_tile_out(&call->out[0], first, y_scratch);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = addend ? x[i] + addend[i] : x[i];
    ot_tile_done(&call->out[0], first, y, n);
  }
}

static void bias(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) bias_row(call, row, columns);
}

// ---- gate ----

static ot_real gate_of(const ot_tensor *logits, int64_t row) {
  return OT_KERNEL(ot_sigmoid)(((const ot_real *)logits->data)[row]);
}

static void gate_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[3][OT_TILE];
  const ot_tensor *const residual = &call->in[2];
  const ot_real s = gate_of(&call->in[1], row);
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t first = row * columns + c;
    const ot_real *const x = ot_tile_in(&call->in[0], first, n, scratch[0]);
    const ot_real *const r = residual->data ? ot_tile_in(residual, first, n, scratch[1]) : NULL;
    ot_real *const y = ot_tile_out(&call->out[0], first, scratch[2]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = r ? r[i] + s * x[i] : s * x[i];
    ot_tile_done(&call->out[0], first, y, n);
  }
}

static void gate(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) gate_row(call, row, columns);
}

static void gate_grad_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[3][OT_TILE];
  const ot_real s = gate_of(&call->in[2], row);
  ot_real sum = 0;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const int64_t first = row * columns + c;
    const ot_real *const dy = ot_tile_in(&call->in[0], first, n, scratch[0]);
    const ot_real *const x = ot_tile_in(&call->in[1], first, n, scratch[1]);
    ot_real *const dx = ot_tile_out(&call->out[0], first, scratch[2]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
      sum += dy[i] * x[i];
      dx[i] = s * dy[i];
    }
    ot_tile_done(&call->out[0], first, dx, n);
  }
  ((ot_real *)call->out[1].data)[row] = s * (1 - s) * sum;
}

static void gate_grad(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) gate_grad_row(call, row, columns);
}

static void inverse(const ot_kernel_call *call) {
  const double n = *(const double *)call->in[0].data;
  *(double *)call->out[0].data = n > 0 ? 1 / n : 0;
}

static void absmax(const ot_kernel_call *call) {
  const int64_t elements = ot_type_elements(&call->in[0].type);
  double *const m = call->out[0].data;
  ot_real largest = 0;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static) \
    reduction(max                                                                     \
              : largest)
  for (int64_t first = 0; first < elements; first += OT_TILE) {
    ot_real scratch[OT_TILE];
    const int64_t n = elements - first < OT_TILE ? elements - first : OT_TILE;
    const ot_real size = ot_row_largest_size(ot_tile_in(&call->in[0], first, n, scratch), n);
    largest = size > largest ? size : largest;
  }
  if ((double)largest > *m) *m = (double)largest;
}

// ---- conversions: exact widening, one rounding when narrowing, for every compute type ----

static void widen_tile(const ot_tensor *from, int64_t first, int64_t n, double *to) {
  if (from->type.dtype == OT_F64) {
    memcpy(to, (const double *)from->data + first, (size_t)n * sizeof *to);
  } else if (from->type.dtype == OT_F32) {
    const float *const x = (const float *)from->data + first;
    for (int64_t i = 0; i < n; i++) to[i] = (double)x[i];
  } else {
    const uint16_t *const x = (const uint16_t *)from->data + first;
    for (int64_t i = 0; i < n; i++) to[i] = (double)ot_bf16_to_float(x[i]);
  }
}

static void narrow_tile(const double *from, const ot_tensor *to, int64_t first, int64_t n) {
  if (to->type.dtype == OT_F64) {
    memcpy((double *)to->data + first, from, (size_t)n * sizeof *from);
  } else if (to->type.dtype == OT_F32) {
    float *const y = (float *)to->data + first;
    for (int64_t i = 0; i < n; i++) y[i] = (float)from[i];
  } else {
    uint16_t *const y = (uint16_t *)to->data + first;
    for (int64_t i = 0; i < n; i++) y[i] = ot_bf16_from_float((float)from[i]);
  }
}

static void cast_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  const ot_tensor *const x = &call->in[0];
  const ot_tensor *const y = &call->out[0];
  if (x->type.dtype == OT_F32 && y->type.dtype == OT_BF16) {
    const float *const from = (const float *)x->data + first;
    uint16_t *const to = (uint16_t *)y->data + first;
    for (int64_t i = 0; i < n; i++) to[i] = ot_bf16_from_float(from[i]);
  } else if (x->type.dtype == OT_BF16 && y->type.dtype == OT_F32) {
    const uint16_t *const from = (const uint16_t *)x->data + first;
    float *const to = (float *)y->data + first;
    for (int64_t i = 0; i < n; i++) to[i] = ot_bf16_to_float(from[i]);
  } else {
    double wide[OT_TILE];
    widen_tile(x, first, n, wide);
    narrow_tile(wide, y, first, n);
  }
}

static void cast(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->in[0].type), cast_tile);
}

static void zero_tile(const ot_kernel_call *call, int64_t first, int64_t n) {
  const ot_tensor *const y = &call->out[0];
  const int64_t bytes = ot_dtype_bytes(y->type.dtype);
  memset((char *)y->data + first * bytes, 0, (size_t)(n * bytes));
}

static void zero(const ot_kernel_call *call) {
  ot_for_tiles(call, ot_type_elements(&call->out[0].type), zero_tile);
}

const ot_kernel_entry OT_KERNEL(ot_elementwise_cpu)[] = {
    {OT_OP_ADD, add},   {OT_OP_BIAS, bias},           {OT_OP_ABSMAX, absmax},
    {OT_OP_CAST, cast}, {OT_OP_ZERO, zero},           {OT_OP_INVERSE, inverse},
    {OT_OP_GATE, gate}, {OT_OP_GATE_GRAD, gate_grad}, {OT_OP_COUNT, NULL},
};
