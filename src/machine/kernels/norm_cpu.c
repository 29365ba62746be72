// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. A row is read from memory once and stays in the L1 cache for both passes:
// statistics, then the result. Gradients of weights are summed by blocks of rows in the workspace,
// each block by one thread, and the blocks are added in order.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/norm.h"

// Substitutes for an absent operand.
static const ot_real zeros[OT_TILE];
static const ot_tensor absent;

static int64_t tile_size(int64_t c, int64_t columns) {
  return columns - c < OT_TILE ? columns - c : OT_TILE;
}

// ---- forward ----

// Four independent sums: a single one would be limited by addition latency.
static inline ot_real sum_squares_of(const ot_real *x, int64_t n, ot_real mean) {
  const int64_t quarter = n / 4;
  ot_real sum[4] = {0};
  for (int64_t i = 4 * quarter; i < n; i++) sum[0] += (x[i] - mean) * (x[i] - mean);
  const ot_real *const second = x + quarter;
  const ot_real *const third = second + quarter;
  const ot_real *const fourth = third + quarter;
  ot_real a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < quarter; i++) {
    a += (x[i] - mean) * (x[i] - mean);
    b += (second[i] - mean) * (second[i] - mean);
    c += (third[i] - mean) * (third[i] - mean);
    d += (fourth[i] - mean) * (fourth[i] - mean);
  }
  return sum[0] + ((a + b) + (c + d));
}

static inline ot_real sum_of(const ot_real *x, int64_t n) {
  const int64_t quarter = n / 4;
  const ot_real *const second = x + quarter;
  const ot_real *const third = second + quarter;
  const ot_real *const fourth = third + quarter;
  ot_real rest = 0, a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 4 * quarter; i < n; i++) rest += x[i];
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < quarter; i++) {
    a += x[i];
    b += second[i];
    c += third[i];
    d += fourth[i];
  }
  return rest + ((a + b) + (c + d));
}

static ot_real sum_squares_about(const ot_tensor *x, int64_t first, int64_t columns, ot_real mean) {
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    sum += sum_squares_of(ot_tile_in(x, first + c, n, scratch), n, mean);
  }
  return sum;
}

static ot_real sum_row(const ot_tensor *x, int64_t first, int64_t columns) {
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    sum += sum_of(ot_tile_in(x, first + c, n, scratch), n);
  }
  return sum;
}

static ot_real inverse_deviation(ot_real sum, int64_t columns, double epsilon) {
  return 1 / ot_real_sqrt(sum / (ot_real)columns + (ot_real)epsilon);
}

// n columns of a row. The forward op and the gradient that writes its output again run the same
// instructions, for the same bits: the two functions are not inlined.
typedef struct row_tile {
  const ot_real *x, *w;
  const ot_real *b;  // of layernorm; zeros when absent
  ot_real mean, rstd, offset;
  int64_t n;
} row_tile;

__attribute__((noinline)) static void rmsnorm_values(const row_tile *t, ot_real *y) {
  const ot_real *const x = t->x;
  const ot_real *const w = t->w;
  const ot_real rstd = t->rstd, offset = t->offset;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) y[i] = x[i] * rstd * (w[i] + offset);
}

__attribute__((noinline)) static void layernorm_values(const row_tile *t, ot_real *y) {
  const ot_real *const x = t->x;
  const ot_real *const w = t->w;
  const ot_real *const b = t->b;
  const ot_real mean = t->mean, rstd = t->rstd;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) y[i] = (x[i] - mean) * rstd * w[i] + b[i];
}

static void rmsnorm_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[3][OT_TILE];
  const int64_t first = row * columns;
  const ot_real sum = sum_squares_about(&call->in[0], first, columns, 0);
  const ot_real rstd = inverse_deviation(sum, columns, call->attributes->epsilon);
  ((ot_real *)call->out[1].data)[row] = rstd;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const row_tile t = {.x = ot_tile_in(&call->in[0], first + c, n, scratch[0]),
                        .w = ot_tile_in(&call->in[1], c, n, scratch[1]),
                        .rstd = rstd,
                        .offset = (ot_real)call->attributes->norm_offset,
                        .n = n};
    ot_real *const y = ot_tile_out(&call->out[0], first + c, scratch[2]);
    rmsnorm_values(&t, y);
    ot_tile_done(&call->out[0], first + c, y, n);
  }
}

static void rmsnorm(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) rmsnorm_row(call, row, columns);
}

static void layernorm_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real scratch[4][OT_TILE];
  const int64_t first = row * columns;
  const ot_real mean = sum_row(&call->in[0], first, columns) / (ot_real)columns;
  const ot_real sum = sum_squares_about(&call->in[0], first, columns, mean);
  const ot_real rstd = inverse_deviation(sum, columns, call->attributes->epsilon);
  ((ot_real *)call->out[1].data)[row] = mean;
  ((ot_real *)call->out[2].data)[row] = rstd;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const row_tile t = {
        .x = ot_tile_in(&call->in[0], first + c, n, scratch[0]),
        .w = ot_tile_in(&call->in[1], c, n, scratch[1]),
        .b = call->in[2].data ? ot_tile_in(&call->in[2], c, n, scratch[2]) : zeros,
        .mean = mean,
        .rstd = rstd,
        .n = n,
    };
    ot_real *const y = ot_tile_out(&call->out[0], first + c, scratch[3]);
    layernorm_values(&t, y);
    ot_tile_done(&call->out[0], first + c, y, n);
  }
}

static void layernorm(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) layernorm_row(call, row, columns);
}

// ---- gradients ----

// One gradient op for both norms: RMSNorm is a LayerNorm whose mean is zero and has no gradient.
typedef struct norm_grad {
  const ot_kernel_call *call;
  const ot_tensor *dy, *x, *w, *partial;
  const ot_tensor *b, *y;  // of layernorm, may be absent; the forward op's output, may be absent
  const ot_real *mean;     // [R], or null for rmsnorm
  const ot_real *rstd;     // [R]
  int64_t rows, columns, blocks;
  ot_real *weights;   // [columns] w + norm_offset
  ot_real *dw_parts;  // [blocks, columns]
  ot_real *db_parts;  // [blocks, columns], or null for rmsnorm
} norm_grad;

typedef struct row_means {
  ot_real g, gh;
} row_means;

// One tile of a row: inputs, accumulators and outputs.
typedef struct grad_tile {
  const ot_real *dy, *x, *w;
  const ot_real *partial;  // zeros when absent
  ot_real *dx, *dw, *db;
  int64_t n;
} grad_tile;

// Adds the sums of g and of g * (x - mean) over n columns, two independent sums of each.
static inline void add_row_sums(const grad_tile *t, ot_real mean, row_means *sums) {
  const ot_real *const dy = t->dy;
  const ot_real *const x = t->x;
  const ot_real *const w = t->w;
  const int64_t n = t->n;
  const int64_t half = n / 2;
  const ot_real *const dy_far = dy + half;
  const ot_real *const x_far = x + half;
  const ot_real *const w_far = w + half;
  ot_real near_g = 0, near_gx = 0, far_g = 0, far_gx = 0;
#pragma omp simd reduction(+ : near_g, near_gx, far_g, far_gx)
  for (int64_t i = 0; i < half; i++) {
    const ot_real near = dy[i] * w[i];
    const ot_real far = dy_far[i] * w_far[i];
    near_g += near;
    far_g += far;
    near_gx += near * (x[i] - mean);
    far_gx += far * (x_far[i] - mean);
  }
  if (n % 2 == 1) {
    near_g += dy[n - 1] * w[n - 1];
    near_gx += dy[n - 1] * w[n - 1] * (x[n - 1] - mean);
  }
  sums->g += near_g + far_g;
  sums->gh += near_gx + far_gx;
}

// mean(g) and mean(g * h), g = dy * weight, h = (x - mean) * rstd.
static row_means row_means_of(const norm_grad *grad, int64_t row) {
  ot_real dy_scratch[OT_TILE];
  ot_real x_scratch[OT_TILE];
  const int64_t first = row * grad->columns;
  const ot_real mean = grad->mean ? grad->mean[row] : 0;
  row_means sums = {0};
  for (int64_t c = 0; c < grad->columns; c += OT_TILE) {
    const int64_t n = tile_size(c, grad->columns);
    const grad_tile t = {.dy = ot_tile_in(grad->dy, first + c, n, dy_scratch),
                         .x = ot_tile_in(grad->x, first + c, n, x_scratch),
                         .w = grad->weights + c,
                         .n = n};
    add_row_sums(&t, mean, &sums);
  }
  const ot_real columns = (ot_real)grad->columns;
  return (row_means){.g = grad->mean ? sums.g / columns : 0,
                     .gh = sums.gh * grad->rstd[row] / columns};
}

// dx = rstd * (dy * w - g - h * gh) + partial, dw += dy * h
static inline void rmsnorm_grad_tile(const grad_tile *t, ot_real rstd, row_means means) {
  const ot_real *const dy = t->dy;
  const ot_real *const x = t->x;
  const ot_real *const w = t->w;
  const ot_real *const partial = t->partial;
  ot_real *const dx = t->dx;
  ot_real *const dw = t->dw;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) {
    const ot_real h = x[i] * rstd;
    dw[i] += dy[i] * h;
    dx[i] = rstd * (dy[i] * w[i] - h * means.gh) + partial[i];
  }
}

static inline void layernorm_grad_tile(const grad_tile *t, ot_real mean, ot_real rstd,
                                       row_means means) {
  const ot_real *const dy = t->dy;
  const ot_real *const x = t->x;
  const ot_real *const w = t->w;
  const ot_real *const partial = t->partial;
  ot_real *const dx = t->dx;
  ot_real *const dw = t->dw;
  ot_real *const db = t->db;
#pragma omp simd
  for (int64_t i = 0; i < t->n; i++) {
    const ot_real h = (x[i] - mean) * rstd;
    dw[i] += dy[i] * h;
    db[i] += dy[i];
    dx[i] = rstd * (dy[i] * w[i] - means.g - h * means.gh) + partial[i];
  }
}

static void prefetch_row(const ot_tensor *tensor, int64_t row, int64_t columns) {
  const int64_t bytes = columns * ot_dtype_bytes(tensor->type.dtype);
  const char *const from = (const char *)tensor->data + row * bytes;
  if (!tensor->data || row >= tensor->type.dim[0]) return;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// y of the columns of `from` in row `row`, from column c on.
static void write_values(const norm_grad *grad, int64_t row, int64_t c, const grad_tile *from) {
  ot_real scratch[2][OT_TILE];
  const int64_t first = row * grad->columns + c, n = from->n;
  const row_tile t = {
      .x = from->x,
      .w = from->w,
      .b = grad->b->data ? ot_tile_in(grad->b, c, n, scratch[0]) : zeros,
      .mean = grad->mean ? grad->mean[row] : 0,
      .rstd = grad->rstd[row],
      .n = n,
  };
  ot_real *const y = ot_tile_out(grad->y, first, scratch[1]);
  if (grad->mean) {
    layernorm_values(&t, y);
  } else {
    rmsnorm_values(&t, y);
  }
  ot_tile_done(grad->y, first, y, n);
}

static void grad_row(const norm_grad *grad, int64_t row, ot_real *dw, ot_real *db) {
  ot_real scratch[4][OT_TILE];
  const ot_tensor *const out = &grad->call->out[0];
  const int64_t first = row * grad->columns;
  const row_means means = row_means_of(grad, row);
  const ot_real rstd = grad->rstd[row];
  prefetch_row(grad->dy, row + 1, grad->columns);
  prefetch_row(grad->x, row + 1, grad->columns);
  prefetch_row(grad->partial, row + 1, grad->columns);
  const bool partial = grad->partial->data != NULL;
  for (int64_t c = 0; c < grad->columns; c += OT_TILE) {
    const int64_t n = tile_size(c, grad->columns);
    const grad_tile t = {
        .dy = ot_tile_in(grad->dy, first + c, n, scratch[0]),
        .x = ot_tile_in(grad->x, first + c, n, scratch[1]),
        .w = grad->weights + c,
        .partial = partial ? ot_tile_in(grad->partial, first + c, n, scratch[2]) : zeros,
        .dx = ot_tile_out(out, first + c, scratch[3]),
        .dw = dw + c,
        .db = db ? db + c : NULL,
        .n = n,
    };
    if (grad->mean) {
      layernorm_grad_tile(&t, grad->mean[row], rstd, means);
    } else {
      rmsnorm_grad_tile(&t, rstd, means);
    }
    ot_tile_done(out, first + c, t.dx, n);
    if (grad->y->data) write_values(grad, row, c, &t);
  }
}

static void grad_block(const norm_grad *grad, int64_t block) {
  const int64_t end = ot_block_begin(grad->rows, grad->blocks, block + 1);
  ot_real *const dw = grad->dw_parts + block * grad->columns;
  ot_real *const db = grad->db_parts ? grad->db_parts + block * grad->columns : NULL;
  memset(dw, 0, (size_t)grad->columns * sizeof *dw);
  if (db) memset(db, 0, (size_t)grad->columns * sizeof *db);
  for (int64_t row = ot_block_begin(grad->rows, grad->blocks, block); row < end; row++) {
    grad_row(grad, row, dw, db);
  }
}

static void add_parts(const norm_grad *grad, const ot_real *parts, const ot_tensor *out) {
  if (!out->data) return;
  const ot_op_attributes *const attributes = grad->call->attributes;
  const ot_block_sums sums = {.parts = parts,
                              .blocks = grad->blocks,
                              .stride = grad->columns,
                              .n = grad->columns,
                              .out = out,
                              .accumulate = attributes->accumulate};
  ot_block_sums_add(grad->call, &sums);
}

static void run_grad(norm_grad *grad) {
  const ot_kernel_call *const call = grad->call;
  const ot_real offset = (ot_real)call->attributes->norm_offset;
  const int threads = ot_threads_for(call, ot_type_elements(&grad->dy->type));
  grad->rows = grad->dy->type.dim[0];
  grad->columns = grad->dy->type.dim[1];
  grad->blocks = ot_row_blocks(grad->rows);
  grad->weights = call->workspace;
  grad->dw_parts = grad->weights + grad->columns;
  if (grad->mean) grad->db_parts = grad->dw_parts + grad->blocks * grad->columns;
  ot_load_row(grad->weights, grad->w->data, grad->w->type.dtype, 0, grad->columns);
  for (int64_t i = 0; i < grad->columns && offset != 0; i++) grad->weights[i] += offset;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t block = 0; block < grad->blocks; block++) grad_block(grad, block);
  add_parts(grad, grad->dw_parts, &call->out[1]);
  if (grad->mean) add_parts(grad, grad->db_parts, &call->out[2]);
}

static void rmsnorm_grad(const ot_kernel_call *call) {
  norm_grad grad = {.call = call,
                    .dy = &call->in[0],
                    .x = &call->in[1],
                    .w = &call->in[2],
                    .rstd = call->in[3].data,
                    .partial = &call->in[4],
                    .b = &absent,
                    .y = &call->out[2]};
  run_grad(&grad);
}

static void layernorm_grad(const ot_kernel_call *call) {
  norm_grad grad = {.call = call,
                    .dy = &call->in[0],
                    .x = &call->in[1],
                    .w = &call->in[2],
                    .mean = call->in[3].data,
                    .rstd = call->in[4].data,
                    .partial = &call->in[5],
                    .b = &call->in[6],
                    .y = &call->out[3]};
  run_grad(&grad);
}

const ot_kernel_entry OT_KERNEL(ot_norm_cpu)[] = {
    {OT_OP_RMSNORM, rmsnorm},     {OT_OP_RMSNORM_GRAD, rmsnorm_grad},
    {OT_OP_LAYERNORM, layernorm}, {OT_OP_LAYERNORM_GRAD, layernorm_grad},
    {OT_OP_COUNT, NULL},
};
