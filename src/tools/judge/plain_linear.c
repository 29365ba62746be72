// SPDX-License-Identifier: Apache-2.0
// Linear layers: y = x w^T + b, dx = dy w, dw += dy^T x, db += the sum of dy over rows, and the
// rounding of operands and results. The product itself is the only thing that the plain model has
// from the trainer.
#include "judge/plain_parts.h"

// ---- products ----

static void multiply_part(const ot_plain_state *s, const ot_gemm *product, bool serial) {
  if (serial) {
    OT_KERNEL(ot_matrix_multiply_serial)(product);
  } else {
    OT_KERNEL(ot_matrix_multiply)(product, s->threads);
  }
}

void OT_KERNEL(ot_plain_multiply)(const ot_plain_state *s, ot_plain_size size, ot_factor a,
                                  ot_factor b, ot_plain_target to) {
  const int64_t half = s->reversed ? size.depth / 2 : 0;
  ot_gemm product = {.rows = size.rows,
                     .columns = size.columns,
                     .depth = half,
                     .a = a,
                     .b = b,
                     .c = to.c,
                     .c_stride = to.stride,
                     .alpha = to.alpha,
                     .beta = 1};
  ot_gemm rest = product;
  rest.depth = size.depth - half;
  rest.a.data += half * (a.transposed ? a.stride : 1);
  rest.b.data += half * (b.transposed ? 1 : b.stride);
  rest.beta = to.beta;
  multiply_part(s, &rest, to.serial);
  if (half > 0) multiply_part(s, &product, to.serial);
}

// ---- rounding ----

static void to_bf16(const ot_plain_state *s, const ot_real *from, int64_t n, ot_real *to) {
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < n; i++) to[i] = ot_plain_bf16(s, from[i]);
}

void OT_KERNEL(ot_plain_round)(const ot_plain_state *s, ot_real *data, int64_t n) {
  if (s->narrow || s->cast) to_bf16(s, data, n, data);
}

const ot_real *OT_KERNEL(ot_plain_operand)(ot_plain_state *s, const ot_real *x, int64_t n) {
  if (!s->cast) return x;
  ot_real *const copy = OT_KERNEL(ot_plain_reals)(s, n);
  to_bf16(s, x, n, copy);
  return copy;
}

// ---- sums over rows ----

enum { SUM_ROWS = 128, SUM_COLUMNS = 64 };

// total [n] = the sums over rows of n columns of terms, by blocks of rows.
static void sum_columns(const ot_real *terms, int64_t rows, int64_t stride, int64_t n,
                        ot_real *total) {
  memset(total, 0, (size_t)n * sizeof *total);
  for (int64_t begin = 0; begin < rows; begin += SUM_ROWS) {
    const int64_t end = begin + SUM_ROWS < rows ? begin + SUM_ROWS : rows;
    ot_real part[SUM_COLUMNS] = {0};
    for (int64_t r = begin; r < end; r++) {
      for (int64_t c = 0; c < n; c++) part[c] += terms[r * stride + c];
    }
    for (int64_t c = 0; c < n; c++) total[c] += part[c];
  }
}

void OT_KERNEL(ot_plain_add_rows)(const ot_plain_state *s, const ot_real *terms, int64_t rows,
                                  ot_plain_weight to) {
  const int64_t width = to.rows * to.cols;
  if (!to.gradient || rows == 0) return;
  // Backwards: from the last row on, with a negative stride.
  const ot_real *const begin = s->reversed ? terms + (rows - 1) * width : terms;
  const int64_t stride = s->reversed ? -width : width;
#pragma omp parallel for num_threads(s->threads)
  for (int64_t first = 0; first < width; first += SUM_COLUMNS) {
    const int64_t n = width - first < SUM_COLUMNS ? width - first : SUM_COLUMNS;
    ot_real total[SUM_COLUMNS];
    sum_columns(begin + first, rows, stride, n, total);
    for (int64_t c = 0; c < n; c++) to.gradient[first + c] += ot_plain_keep(s, total[c]);
  }
}

// ---- linear layers ----

typedef struct linear {
  ot_plain_weight weight, bias;
  bool rounds;  // operands and results, if the type does
} linear;

static ot_plain_weight rows_of(ot_plain_weight w, ot_plain_slice slice) {
  if (!w.value || slice.rows == 0) return w;
  w.value += slice.first * w.cols;
  w.gradient = w.gradient ? w.gradient + slice.first * w.cols : NULL;
  w.rows = slice.rows;
  return w;
}

static const ot_real *operand(ot_plain_state *s, const linear *l, const ot_real *x, int64_t n) {
  return l->rounds ? OT_KERNEL(ot_plain_operand)(s, x, n) : x;
}

// The weight as an operand: software rounds it once, to the nearest.
static const ot_real *weight_operand(ot_plain_state *s, const linear *l) {
  const int64_t n = l->weight.rows * l->weight.cols;
  if (!s->cast || !l->rounds) return l->weight.value;
  ot_real *const copy = OT_KERNEL(ot_plain_reals)(s, n);
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < n; i++) copy[i] = ot_plain_nearest(l->weight.value[i]);
  return copy;
}

// Results of the layer are rounded.
static bool rounds_results(const ot_plain_state *s, const linear *l) {
  return l->rounds && (s->narrow || s->cast);
}

static void weight_back(ot_plain_state *s, const linear *l, const ot_plain_value *x,
                        const ot_real *dy) {
  const int64_t n = l->weight.rows * l->weight.cols;
  const bool rounds = rounds_results(s, l);
  ot_real *const dw = rounds ? OT_KERNEL(ot_plain_reals)(s, n) : l->weight.gradient;
  const ot_factor d = {dy, l->weight.rows, true};
  const ot_factor in = {operand(s, l, x->x, x->rows * x->width), x->width, false};
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){l->weight.rows, x->width, x->rows}, d, in,
   (ot_plain_target){dw, x->width, 1, !rounds, false});
  if (!rounds) return;
#pragma omp parallel for num_threads(s->threads)
  for (int64_t i = 0; i < n; i++) l->weight.gradient[i] += ot_plain_bf16(s, dw[i]);
}

static void input_back(ot_plain_state *s, const linear *l, ot_plain_value *x, const ot_real *dy) {
  const bool rounds = rounds_results(s, l);
  ot_real *const dx = rounds ? OT_KERNEL(ot_plain_reals)(s, x->rows * x->width) : x->d;
  const ot_factor d = {dy, l->weight.rows, false}, w = {weight_operand(s, l), x->width, false};
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){x->rows, x->width, l->weight.rows}, d, w,
   (ot_plain_target){dx, x->width, 1, !rounds, false});
  if (!rounds) return;
  OT_KERNEL(ot_plain_round)(s, dx, x->rows * x->width);
  OT_KERNEL(ot_plain_give)(s, x, dx);
}

static void linear_back(ot_plain_state *s, const ot_plain_op *op) {
  const linear *const l = op->settings;
  const ot_plain_value *const y = op->out;
  const ot_real *const dy = operand(s, l, y->d, y->rows * y->width);
  if (l->weight.gradient) weight_back(s, l, op->in[0], dy);
  if (l->bias.value) OT_KERNEL(ot_plain_add_rows)(s, y->d, y->rows, l->bias);
  input_back(s, l, op->in[0], dy);
}

ot_plain_value *OT_KERNEL(ot_plain_linear)(ot_plain_state *s, ot_plain_value *x,
                                           ot_plain_slice slice) {
  const linear l = {rows_of(OT_KERNEL(ot_plain_find)(s, slice.name, "weight"), slice),
                    rows_of(OT_KERNEL(ot_plain_find)(s, slice.name, "bias"), slice), !slice.wide};
  const int64_t outputs = l.weight.rows, inputs = x->width;
  ot_plain_value *const y = OT_KERNEL(ot_plain_make)(s, x->rows, outputs);
  OT_KERNEL(ot_plain_record)(s, (ot_plain_op){linear_back, y, {x}, NULL}, &l, sizeof l);
  const ot_plain_mark mark = s->at;
  const ot_factor in = {operand(s, &l, x->x, x->rows * inputs), inputs, false};
  const ot_factor w = {weight_operand(s, &l), inputs, true};
  OT_KERNEL(ot_plain_multiply)
  (s, (ot_plain_size){x->rows, outputs, inputs}, in, w,
   (ot_plain_target){y->x, outputs, 1, 0, false});
  OT_KERNEL(ot_plain_release)(s, mark);
  for (int64_t r = 0; l.bias.value && r < x->rows; r++) {
    for (int64_t o = 0; o < outputs; o++) y->x[r * outputs + o] += l.bias.value[o];
  }
  if (l.rounds) OT_KERNEL(ot_plain_round)(s, y->x, y->rows * outputs);
  return y;
}
