// SPDX-License-Identifier: Apache-2.0
// Linear layers by GEMMs. Addends (bias, residual, partial, previous gradient) are written to the
// output first and the GEMM accumulates: a BLAS would write zeros there anyway, so this costs less
// than a pass afterwards. dbias is summed by blocks of rows (blocks.h).
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/matrix.h"
#include "kernels/view.h"
#include "ops/linear.h"
#include "ops/shares.h"
#include "workspace/blocks.h"
#include "workspace/cpu_workspace.h"

// Writes the initial value of a GEMM of `part` into v: bias (a vector, or absent) + addend (a
// matrix, or absent). Returns false, and does nothing, when both are absent.
static bool prefill(ot_view v, ot_matrix_part part, const ot_tensor *bias, const ot_tensor *addend,
                    int threads) {
  if (!bias->data && !addend->data) return false;
#pragma omp parallel for num_threads(ot_threads_for_elements(part.rows *part.columns, threads))
  for (int64_t r = 0; r < part.rows; r++) {
    ot_real bias_scratch[OT_TILE];
    for (int64_t i = 0; i < part.columns; i += OT_TILE) {
      const int64_t n = part.columns - i < OT_TILE ? part.columns - i : OT_TILE;
      ot_real *const row = v.data + r * v.stride + i;
      if (addend->data) {
        ot_load_row(row, addend->data, addend->type.dtype,
                    ot_matrix_part_element(addend, &part, r) + i, n);
      } else {
        memset(row, 0, (size_t)n * sizeof *row);
      }
      if (!bias->data) continue;
      const ot_real *const b =
          ot_row_in(bias->data, bias->type.dtype, part.column + i, n, bias_scratch);
      for (int64_t k = 0; k < n; k++) row[k] += b[k];
    }
  }
  return true;
}

static int64_t block_columns(int64_t block, int64_t first, int64_t columns) {
  return columns - first < block ? columns - first : block;
}

static void linear(const ot_kernel_call *call) {
  const ot_tensor *const x = &call->in[0];
  const ot_tensor *const w = &call->in[1];
  const ot_tensor *const y = &call->out[0];
  const int threads = call->attributes->threads;
  const int64_t R = x->type.dim[0], C = x->type.dim[1], O = w->type.dim[0];
  const ot_linear_layout layout =
      ot_linear_layout_of(OT_REAL_DTYPE, &x->type, &y->type, &w->type, false);
  const ot_view xs =
      ot_view_read(x, (ot_matrix_part){0, R, 0, C}, ot_scratch_at(call, layout.wide), threads);
  for (int64_t first = 0; first < O; first += layout.block) {
    const int64_t n = block_columns(layout.block, first, O);
    const ot_matrix_part part = {0, R, first, n};
    const ot_view ws =
        ot_view_read(w, (ot_matrix_part){first, n, 0, C}, ot_scratch_at(call, layout.w), threads);
    const ot_view ys = ot_view_of(y, part, ot_scratch_at(call, layout.tall));
    const bool adds = prefill(ys, part, &call->in[2], &call->in[3], threads);
    const ot_gemm product = {.rows = R,
                             .columns = n,
                             .depth = C,
                             .a = {xs.data, xs.stride, false},
                             .b = {ws.data, ws.stride, true},
                             .c = ys.data,
                             .c_stride = ys.stride,
                             .alpha = 1,
                             .beta = adds ? 1 : 0,
                             .independent_rows = call->attributes->independent_rows};
    OT_KERNEL(ot_matrix_multiply)(&product, threads);
    ot_view_write(y, part, ys, threads);
  }
}

static void linear_dx(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const w = &call->in[1];
  const ot_tensor *const dx = &call->out[0];
  const int threads = call->attributes->threads;
  const int64_t R = dy->type.dim[0], O = dy->type.dim[1], C = w->type.dim[1];
  const ot_linear_layout layout =
      ot_linear_layout_of(OT_REAL_DTYPE, &dx->type, &dy->type, &w->type, false);
  const ot_matrix_part all = {0, R, 0, C};
  const ot_view dxs = ot_view_of(dx, all, ot_scratch_at(call, layout.wide));
  const ot_tensor no_bias = {0};
  bool adds = prefill(dxs, all, &no_bias, &call->in[2], threads);
  for (int64_t first = 0; first < O; first += layout.block) {
    const int64_t n = block_columns(layout.block, first, O);
    const ot_view dys = ot_view_read(dy, (ot_matrix_part){0, R, first, n},
                                     ot_scratch_at(call, layout.tall), threads);
    const ot_view ws =
        ot_view_read(w, (ot_matrix_part){first, n, 0, C}, ot_scratch_at(call, layout.w), threads);
    const ot_gemm product = {.rows = R,
                             .columns = C,
                             .depth = n,
                             .a = {dys.data, dys.stride, false},
                             .b = {ws.data, ws.stride, false},
                             .c = dxs.data,
                             .c_stride = dxs.stride,
                             .alpha = 1,
                             .beta = adds ? 1 : 0};
    OT_KERNEL(ot_matrix_multiply)(&product, threads);
    adds = true;
  }
  ot_view_write(dx, all, dxs, threads);
}

// dw rows [first, first + n) (+)= dy[:, first..]^T x
static void weight_block(const ot_kernel_call *call, const ot_linear_layout *layout, ot_view xs,
                         int64_t first) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const dw = &call->out[0];
  const int threads = call->attributes->threads;
  const int64_t R = dy->type.dim[0], C = dw->type.dim[1];
  const int64_t n = block_columns(layout->block, first, dy->type.dim[1]);
  const ot_matrix_part part = {first, n, 0, C};
  const bool adds = call->attributes->accumulate;
  const ot_view dys = ot_view_read(dy, (ot_matrix_part){0, R, first, n},
                                   ot_scratch_at(call, layout->tall), threads);
  ot_real *const scratch = ot_scratch_at(call, layout->w);
  const ot_view dws =
      adds ? ot_view_read(dw, part, scratch, threads) : ot_view_of(dw, part, scratch);
  const ot_gemm product = {.rows = n,
                           .columns = C,
                           .depth = R,
                           .a = {dys.data, dys.stride, true},
                           .b = {xs.data, xs.stride, false},
                           .c = dws.data,
                           .c_stride = dws.stride,
                           .alpha = 1,
                           .beta = adds ? 1 : 0};
  OT_KERNEL(ot_matrix_multiply)(&product, threads);
  ot_view_write(dw, part, dws, threads);
}

// sums[block] = sum of the block's rows of dy
static void sum_row_block(const ot_tensor *dy, ot_real *sums, int64_t begin, int64_t end) {
  const int64_t O = dy->type.dim[1];
  ot_real scratch[OT_TILE];
  memset(sums, 0, (size_t)O * sizeof *sums);
  for (int64_t r = begin; r < end; r++) {
    for (int64_t i = 0; i < O; i += OT_TILE) {
      const int64_t n = O - i < OT_TILE ? O - i : OT_TILE;
      const ot_real *const row = ot_row_in(dy->data, dy->type.dtype, r * O + i, n, scratch);
      for (int64_t k = 0; k < n; k++) sums[i + k] += row[k];
    }
  }
}

static void bias_gradient(const ot_kernel_call *call, ot_real *sums) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const dbias = &call->out[1];
  const int64_t R = dy->type.dim[0], O = dy->type.dim[1];
  const int64_t blocks = ot_row_blocks(R);
#pragma omp parallel for num_threads(call->attributes->threads)
  for (int64_t b = 0; b < blocks; b++) {
    sum_row_block(dy, sums + b * O, ot_block_begin(R, blocks, b), ot_block_begin(R, blocks, b + 1));
  }
#pragma omp parallel for num_threads(call->attributes->threads)
  for (int64_t i = 0; i < O; i += OT_TILE) {
    const int64_t n = O - i < OT_TILE ? O - i : OT_TILE;
    ot_real total[OT_TILE];
    memset(total, 0, sizeof total);
    for (int64_t b = 0; b < blocks; b++) {
      for (int64_t k = 0; k < n; k++) total[k] += sums[b * O + i + k];
    }
    ot_real scratch[OT_TILE];
    if (call->attributes->accumulate) {
      const ot_real *const old = ot_row_in(dbias->data, dbias->type.dtype, i, n, scratch);
      for (int64_t k = 0; k < n; k++) total[k] += old[k];
    }
    ot_store_row(dbias->data, dbias->type.dtype, i, total, n);
  }
}

static void linear_dw(const ot_kernel_call *call) {
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const x = &call->in[1];
  const int64_t R = x->type.dim[0], C = x->type.dim[1], O = dy->type.dim[1];
  const ot_tensor_type absent = {0};
  const ot_linear_layout layout = ot_linear_layout_of(
      OT_REAL_DTYPE, &x->type, &dy->type, call->out[0].data ? &call->out[0].type : &absent,
      call->out[1].data != NULL);
  if (call->out[0].data) {
    const ot_view xs = ot_view_read(x, (ot_matrix_part){0, R, 0, C},
                                    ot_scratch_at(call, layout.wide), call->attributes->threads);
    for (int64_t first = 0; first < O; first += layout.block) {
      weight_block(call, &layout, xs, first);
    }
  }
  if (call->out[1].data) bias_gradient(call, ot_scratch_at(call, layout.sums));
}

const ot_kernel_entry OT_KERNEL(ot_linear_cpu)[] = {
    {OT_OP_LINEAR, linear},      {OT_OP_LINEAR_DX, linear_dx},      {OT_OP_LINEAR_DW, linear_dw},
    {OT_OP_LINEAR_WIDE, linear}, {OT_OP_LINEAR_WIDE_DX, linear_dx}, {0, NULL},
};
