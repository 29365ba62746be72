// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. A row is read from memory once and stays in the first cache for the passes
// over it: statistics, then the result. Gradients of weights are summed by blocks of rows in the
// workspace, each block by one thread, and the blocks added in order.
#include <stddef.h>
#include <string.h>

#include "ops/norm.h"
#include "ops/tiles.h"

static int64_t tile_size(int64_t c, int64_t columns) {
  return columns - c < OT_TILE ? columns - c : OT_TILE;
}

// ---- forward ----

static ot_real sum_squares_about(const ot_tensor *x, int64_t first, int64_t columns, ot_real mean) {
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const ot_real *const row = ot_tile_in(x, first + c, n, scratch);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (row[i] - mean) * (row[i] - mean);
  }
  return sum;
}

static ot_real sum_row(const ot_tensor *x, int64_t first, int64_t columns) {
  ot_real scratch[OT_TILE];
  ot_real sum = 0;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const ot_real *const row = ot_tile_in(x, first + c, n, scratch);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += row[i];
  }
  return sum;
}

static ot_real inverse_deviation(ot_real sum, int64_t columns, double epsilon) {
  return 1 / ot_real_sqrt(sum / (ot_real)columns + (ot_real)epsilon);
}

static void rmsnorm_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real x_scratch[OT_TILE];
  ot_real w_scratch[OT_TILE];
  ot_real y_scratch[OT_TILE];
  const int64_t first = row * columns;
  const ot_real offset = (ot_real)call->attributes->norm_offset;
  const ot_real sum = sum_squares_about(&call->in[0], first, columns, 0);
  const ot_real rstd = inverse_deviation(sum, columns, call->attributes->epsilon);
  ((ot_real *)call->out[1].data)[row] = rstd;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const ot_real *const x = ot_tile_in(&call->in[0], first + c, n, x_scratch);
    const ot_real *const w = ot_tile_in(&call->in[1], c, n, w_scratch);
    ot_real *const y = ot_tile_out(&call->out[0], first + c, y_scratch);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * (w[i] + offset);
    ot_tile_done(&call->out[0], first + c, y, n);
  }
}

static void rmsnorm(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(call->attributes->threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) rmsnorm_row(call, row, columns);
}

static void layernorm_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real x_scratch[OT_TILE];
  ot_real w_scratch[OT_TILE];
  ot_real b_scratch[OT_TILE] = {0};
  ot_real y_scratch[OT_TILE];
  const int64_t first = row * columns;
  const ot_real mean = sum_row(&call->in[0], first, columns) / (ot_real)columns;
  const ot_real sum = sum_squares_about(&call->in[0], first, columns, mean);
  const ot_real rstd = inverse_deviation(sum, columns, call->attributes->epsilon);
  ((ot_real *)call->out[1].data)[row] = mean;
  ((ot_real *)call->out[2].data)[row] = rstd;
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = tile_size(c, columns);
    const ot_real *const x = ot_tile_in(&call->in[0], first + c, n, x_scratch);
    const ot_real *const w = ot_tile_in(&call->in[1], c, n, w_scratch);
    const ot_real *const b =
        call->in[2].data ? ot_tile_in(&call->in[2], c, n, b_scratch) : b_scratch;
    ot_real *const y = ot_tile_out(&call->out[0], first + c, y_scratch);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    ot_tile_done(&call->out[0], first + c, y, n);
  }
}

static void layernorm(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t columns = call->in[0].type.dim[1];
#pragma omp parallel for num_threads(call->attributes->threads) schedule(static)
  for (int64_t row = 0; row < rows; row++) layernorm_row(call, row, columns);
}

// ---- gradients ----

// One gradient op with the differences between the two norms resolved: RMSNorm is a LayerNorm whose
// mean is zero and has no gradient.
typedef struct norm_grad {
  const ot_kernel_call *call;
  const ot_tensor *dy, *x, *w, *partial;
  const ot_real *mean;  // [R], or null for rmsnorm
  const ot_real *rstd;  // [R]
  ot_real offset;       // of the weights
  int64_t rows, columns, blocks;
  ot_real *dw_parts;  // [blocks, columns]
  ot_real *db_parts;  // [blocks, columns], or null when absent
} norm_grad;

typedef struct row_means {
  ot_real g, gh;
} row_means;

// mean(g) and mean(g * h), g = dy * (w + offset), h = (x - mean) * rstd.
static row_means row_means_of(const norm_grad *grad, int64_t row) {
  ot_real dy_scratch[OT_TILE];
  ot_real x_scratch[OT_TILE];
  ot_real w_scratch[OT_TILE];
  const int64_t first = row * grad->columns;
  const ot_real mean = grad->mean ? grad->mean[row] : 0;
  const ot_real offset = grad->offset;
  ot_real sum_g = 0;
  ot_real sum_gx = 0;
  for (int64_t c = 0; c < grad->columns; c += OT_TILE) {
    const int64_t n = tile_size(c, grad->columns);
    const ot_real *const dy = ot_tile_in(grad->dy, first + c, n, dy_scratch);
    const ot_real *const x = ot_tile_in(grad->x, first + c, n, x_scratch);
    const ot_real *const w = ot_tile_in(grad->w, c, n, w_scratch);
#pragma omp simd reduction(+ : sum_g, sum_gx)
    for (int64_t i = 0; i < n; i++) {
      const ot_real g = dy[i] * (w[i] + offset);
      sum_g += g;
      sum_gx += g * (x[i] - mean);
    }
  }
  const ot_real columns = (ot_real)grad->columns;
  return (row_means){.g = grad->mean ? sum_g / columns : 0,
                     .gh = sum_gx * grad->rstd[row] / columns};
}

// What one row adds to the gradients of the weights; db may be null.
static void add_weight_row(const ot_real *dy, const ot_real *h, int64_t n, ot_real *dw,
                           ot_real *db) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dw[i] += dy[i] * h[i];
  if (!db) return;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) db[i] += dy[i];
}

static void grad_row(const norm_grad *grad, int64_t row, ot_real *dw, ot_real *db) {
  ot_real scratch[4][OT_TILE];
  ot_real h[OT_TILE];
  const ot_tensor *const dx = &grad->call->out[0];
  const int64_t first = row * grad->columns;
  const row_means means = row_means_of(grad, row);
  const ot_real mean = grad->mean ? grad->mean[row] : 0;
  const ot_real rstd = grad->rstd[row];
  const ot_real offset = grad->offset;
  for (int64_t c = 0; c < grad->columns; c += OT_TILE) {
    const int64_t n = tile_size(c, grad->columns);
    const ot_real *const dy = ot_tile_in(grad->dy, first + c, n, scratch[0]);
    const ot_real *const x = ot_tile_in(grad->x, first + c, n, scratch[1]);
    const ot_real *const w = ot_tile_in(grad->w, c, n, scratch[2]);
    ot_real *const to = ot_tile_out(dx, first + c, scratch[3]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) h[i] = (x[i] - mean) * rstd;
    add_weight_row(dy, h, n, dw + c, db ? db + c : NULL);
    if (grad->partial->data) {
      const ot_real *const partial = ot_tile_in(grad->partial, first + c, n, scratch[1]);
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        to[i] = rstd * (dy[i] * (w[i] + offset) - means.g - h[i] * means.gh) + partial[i];
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        to[i] = rstd * (dy[i] * (w[i] + offset) - means.g - h[i] * means.gh);
      }
    }
    ot_tile_done(dx, first + c, to, n);
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
                              .out = out->data,
                              .accumulate = attributes->accumulate};
  ot_block_sums_add(&sums, attributes->threads);
}

static void run_grad(const norm_grad *grad) {
#pragma omp parallel for num_threads(grad->call->attributes->threads) schedule(static)
  for (int64_t block = 0; block < grad->blocks; block++) grad_block(grad, block);
  add_parts(grad, grad->dw_parts, &grad->call->out[1]);
  if (grad->db_parts) add_parts(grad, grad->db_parts, &grad->call->out[2]);
}

static void rmsnorm_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in;
  const norm_grad grad = {
      .call = call,
      .dy = &in[0],
      .x = &in[1],
      .w = &in[2],
      .partial = &in[4],
      .rstd = in[3].data,
      .offset = (ot_real)call->attributes->norm_offset,
      .rows = in[0].type.dim[0],
      .columns = in[0].type.dim[1],
      .blocks = ot_row_blocks(in[0].type.dim[0]),
      .dw_parts = call->workspace,
  };
  run_grad(&grad);
}

static void layernorm_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in;
  norm_grad grad = {
      .call = call,
      .dy = &in[0],
      .x = &in[1],
      .w = &in[2],
      .partial = &in[5],
      .mean = in[3].data,
      .rstd = in[4].data,
      .rows = in[0].type.dim[0],
      .columns = in[0].type.dim[1],
      .blocks = ot_row_blocks(in[0].type.dim[0]),
      .dw_parts = call->workspace,
  };
  if (call->out[2].data) grad.db_parts = grad.dw_parts + grad.blocks * grad.columns;
  run_grad(&grad);
}

const ot_kernel_entry OT_KERNEL(ot_norm_cpu)[] = {
    {OT_OP_RMSNORM, rmsnorm},     {OT_OP_RMSNORM_GRAD, rmsnorm_grad},
    {OT_OP_LAYERNORM, layernorm}, {OT_OP_LAYERNORM_GRAD, layernorm_grad},
    {OT_OP_COUNT, NULL},
};
