// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM of experts: a work item is an expert and a block of columns, done by one thread.
// Threads take work items dynamically, since experts differ in rows; a result does not depend on
// the thread. For y and dx a work item packs its block of the matrix into panels once and
// multiplies the expert's rows by register tiles (register_tile.h): a BLAS would pack the matrix in
// every call, and experts have few rows. dw uses a BLAS.
#include <assert.h>
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/matrix.h"
#include "kernels/register_tile.h"
#include "kernels/view.h"
#include "ops/grouped.h"
#include "ops/route.h"
#include "workspace/cpu_workspace.h"

enum {
  PACKED_DEPTH = 64,  // of the matrix, transposed at a time
  PANEL_DEPTH = 256,  // of a panel, which stays in the L1 cache
};
static_assert(OT_GROUPED_ROWS % OT_TILE_ROWS == 0 && OT_GROUPED_COLUMNS % OT_PANEL == 0,
              "whole register tiles");

// One op and one of its work items.
typedef struct piece {
  const ot_kernel_call *call;
  const ot_grouped_layout *layout;
  const ot_tensor *bias;  // or null
  int64_t expert;
  int64_t begin, end;                  // rows of the expert
  int64_t column, columns;             // of the result
  ot_real *matrix, *operand, *result;  // scratch of the thread
} piece;

typedef struct depths {
  int64_t begin, end;
} depths;

typedef void (*piece_function)(const piece *p);

static void for_pieces(const ot_kernel_call *call, ot_op_kind kind, int64_t width,
                       piece_function run) {
  ot_op_types types = {0};
  for (int i = 0; i < 3; i++) types.in[i] = call->in[i].type;
  types.out[0] = call->out[0].type;
  const ot_grouped_layout layout = ot_grouped_layout_of(call->attributes, kind, &types);
  const int64_t blocks = (width + layout.block - 1) / layout.block;
  const int32_t *const offsets = call->in[2].data;
  OT_KERNEL(ot_matrix_prepare)();
#pragma omp parallel for num_threads(call->attributes->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < layout.E * blocks; i++) {
    const int64_t column = i % blocks * layout.block;
    const int64_t left = width - column;
    piece p = {.call = call,
               .layout = &layout,
               .expert = i / blocks,
               .begin = offsets[i / blocks],
               .end = offsets[i / blocks + 1],
               .column = column,
               .columns = left < layout.block ? left : layout.block};
    p.matrix = (ot_real *)call->workspace + omp_get_thread_num() * layout.elements;
    p.operand = p.matrix + layout.matrix;
    p.result = p.operand + layout.operand;
    run(&p);
  }
}

// Elements between rows of results in scratch: whole panels.
static int64_t result_stride(const piece *p) {
  return (p->layout->block + OT_GROUPED_COLUMNS - 1) / OT_GROUPED_COLUMNS * OT_GROUPED_COLUMNS;
}

// Part `part` of `tensor`, in `scratch` if it must be widened.
static ot_view part_of(const ot_tensor *tensor, ot_matrix_part part, ot_real *scratch) {
  return ot_view_read(tensor, part, scratch, 1);
}

// ---- y and dx: tiles of rows ----

// Panels of the matrix [panel][depth][OT_PANEL]: depth runs over its columns (y) or its rows (dx).
// Columns after the last are zero.

static void pack_rows(const piece *p) {
  const ot_tensor *const w = &p->call->in[1];
  const int64_t depth = p->layout->depth;
  const int64_t first = p->expert * p->call->out[0].type.dim[1] + p->column;
  ot_real rows[OT_PANEL][PACKED_DEPTH];
  for (int64_t column = 0; column < p->columns; column += OT_PANEL) {
    const int64_t n = p->columns - column < OT_PANEL ? p->columns - column : OT_PANEL;
    memset(rows, 0, sizeof rows);
    for (int64_t k = 0; k < depth; k += PACKED_DEPTH) {
      const int64_t deep = depth - k < PACKED_DEPTH ? depth - k : PACKED_DEPTH;
      ot_real *const panel = p->matrix + column * depth + k * OT_PANEL;
      for (int64_t i = 0; i < n; i++) {
        ot_load_row(rows[i], w->data, w->type.dtype, (first + column + i) * depth + k, deep);
      }
      for (int64_t j = 0; j < deep; j++) {
        for (int i = 0; i < OT_PANEL; i++) panel[j * OT_PANEL + i] = rows[i][j];
      }
    }
  }
}

static void pack_columns(const piece *p) {
  const ot_tensor *const w = &p->call->in[1];
  const int64_t depth = p->layout->depth;
  for (int64_t k = 0; k < depth; k++) {
    const int64_t row = (p->expert * depth + k) * w->type.dim[1] + p->column;
    for (int64_t column = 0; column < p->columns; column += OT_PANEL) {
      const int64_t n = p->columns - column < OT_PANEL ? p->columns - column : OT_PANEL;
      ot_real *const to = p->matrix + column * depth + k * OT_PANEL;
      ot_load_row(to, w->data, w->type.dtype, row + column, n);
      if (n < OT_PANEL) memset(to + n, 0, (size_t)(OT_PANEL - n) * sizeof *to);
    }
  }
}

// Rows of the operand: rows from `copied` on are in scratch, zero-padded to whole register tiles;
// the others are read in place.
typedef struct row_tile {
  ot_view own, scratch;
  int64_t rows, copied;
} row_tile;

static row_tile tile_of(const piece *p, int64_t row) {
  const ot_tensor *const x = &p->call->in[0];
  const int64_t depth = p->layout->depth;
  const int64_t left = p->end - row;
  row_tile t = {.rows = left < p->layout->tile ? left : p->layout->tile,
                .scratch = {p->operand, depth}};
  if (x->type.dtype == OT_REAL_DTYPE) {
    t.own = ot_view_of(x, (ot_matrix_part){row, t.rows, 0, depth}, NULL);
    t.copied = t.rows / OT_TILE_ROWS * OT_TILE_ROWS;
  }
  const int64_t n = t.rows - t.copied;
  const int64_t filled = (n + OT_TILE_ROWS - 1) / OT_TILE_ROWS * OT_TILE_ROWS;
  ot_load_row(p->operand, x->data, x->type.dtype, (row + t.copied) * depth, n * depth);
  memset(p->operand + n * depth, 0, (size_t)((filled - n) * depth) * sizeof(ot_real));
  return t;
}

// Adds the contribution of depths [k, k + deep) to a panel of results.
static void multiply_panel(const piece *p, const row_tile *t, int64_t column, depths k) {
  const int64_t width = result_stride(p);
  for (int64_t r = 0; r < t->rows; r += OT_TILE_ROWS) {
    const ot_view x = r < t->copied ? t->own : t->scratch;
    const int64_t row = r < t->copied ? r : r - t->copied;
    const ot_register_tile tile = {.a = x.data + row * x.stride + k.begin,
                                   .a_row = x.stride,
                                   .a_depth = 1,
                                   .b = p->matrix + column * p->layout->depth + k.begin * OT_PANEL,
                                   .b_stride = OT_PANEL,
                                   .c = p->result + r * width + column,
                                   .c_stride = width,
                                   .depth = k.end - k.begin};
    if (k.begin == 0) {
      ot_tile_multiply(&tile, OT_TILE_VECTORS, OT_TILE_ZERO, NULL);
    } else {
      ot_tile_multiply(&tile, OT_TILE_VECTORS, OT_TILE_ADD, NULL);
    }
  }
}

// Adds the bias of the work item's expert to the rows of a tile.
static void add_bias(const piece *p, const ot_tensor *bias, int64_t rows) {
  const int64_t width = result_stride(p);
  const int64_t first = p->expert * p->call->out[0].type.dim[1] + p->column;
  for (int64_t i = 0; i < p->columns; i += OT_TILE) {
    const int64_t n = p->columns - i < OT_TILE ? p->columns - i : OT_TILE;
    ot_real scratch[OT_TILE];
    const ot_real *const b = ot_row_in(bias->data, bias->type.dtype, first + i, n, scratch);
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t k = 0; k < n; k++) p->result[r * width + i + k] += b[k];
    }
  }
}

static void make_tile(const piece *p, int64_t row) {
  const ot_tensor *const y = &p->call->out[0];
  const int64_t depth = p->layout->depth;
  const row_tile t = tile_of(p, row);
  for (int64_t k = 0; k < depth; k += PANEL_DEPTH) {
    const depths deep = {k, depth - k < PANEL_DEPTH ? depth : k + PANEL_DEPTH};
    for (int64_t column = 0; column < p->columns; column += OT_PANEL) {
      multiply_panel(p, &t, column, deep);
    }
  }
  if (p->bias) add_bias(p, p->bias, t.rows);
  for (int64_t r = 0; r < t.rows; r++) {
    ot_store_row(y->data, y->type.dtype, (row + r) * y->type.dim[1] + p->column,
                 p->result + r * result_stride(p), p->columns);
  }
}

static void make_tiles(const piece *p) {
  for (int64_t row = p->begin; row < p->end; row += p->layout->tile) make_tile(p, row);
}

static void clear_unused(const ot_kernel_call *call) {
  const ot_tensor *const y = &call->out[0];
  const int64_t used =
      ((const int32_t *)call->in[2].data)[ot_route_local_experts(call->attributes)];
  const int64_t bytes = y->type.dim[1] * ot_dtype_bytes(y->type.dtype);
  memset((char *)y->data + used * bytes, 0, (size_t)((y->type.dim[0] - used) * bytes));
}

static void forward_piece(const piece *p) {
  if (p->begin == p->end) return;
  piece biased = *p;
  if (p->call->in[3].data) biased.bias = &p->call->in[3];
  pack_rows(p);
  make_tiles(&biased);
}

static void grouped_linear(const ot_kernel_call *call) {
  clear_unused(call);
  for_pieces(call, OT_OP_GROUPED_LINEAR, call->out[0].type.dim[1], forward_piece);
}

static void dx_piece(const piece *p) {
  if (p->begin == p->end) return;
  pack_columns(p);
  make_tiles(p);
}

static void grouped_linear_dx(const ot_kernel_call *call) {
  clear_unused(call);
  for_pieces(call, OT_OP_GROUPED_LINEAR_DX, call->out[0].type.dim[1], dx_piece);
}

// ---- dw: sums over rows ----

// Columns [column, column + columns) of dbias[e].
static void bias_piece(const piece *p) {
  const ot_tensor *const dbias = &p->call->out[1];
  const ot_tensor *const dy = &p->call->in[0];
  const int64_t O = dy->type.dim[1];
  for (int64_t i = p->column; i < p->column + p->columns; i += OT_TILE) {
    const int64_t left = p->column + p->columns - i;
    const int64_t n = left < OT_TILE ? left : OT_TILE;
    ot_real sum[OT_TILE], scratch[OT_TILE];
    memset(sum, 0, sizeof sum);
    if (p->call->attributes->accumulate) {
      ot_load_row(sum, dbias->data, dbias->type.dtype, p->expert * O + i, n);
    }
    for (int64_t row = p->begin; row < p->end; row++) {
      const ot_real *const ys = ot_row_in(dy->data, dy->type.dtype, row * O + i, n, scratch);
      for (int64_t k = 0; k < n; k++) sum[k] += ys[k];
    }
    ot_store_row(dbias->data, dbias->type.dtype, p->expert * O + i, sum, n);
  }
}

// Rows [column, column + columns) of dw[e], accumulated over blocks of the expert's rows.
static void dw_piece(const piece *p) {
  const ot_tensor *const dw = &p->call->out[0];
  const ot_tensor *const dy = &p->call->in[0];
  const ot_tensor *const x = &p->call->in[1];
  const int64_t O = dy->type.dim[1];
  const int64_t C = x->type.dim[1];
  const ot_matrix_part part = {p->expert * O + p->column, p->columns, 0, C};
  bool adds = p->call->attributes->accumulate;
  if (p->call->out[1].data) bias_piece(p);
  if (adds && p->begin == p->end) return;
  const ot_view sum = adds ? part_of(dw, part, p->result) : ot_view_of(dw, part, p->result);
  if (p->begin == p->end) memset(sum.data, 0, (size_t)(p->columns * C) * sizeof *sum.data);
  for (int64_t row = p->begin; row < p->end; row += p->layout->depth) {
    const int64_t rows = p->end - row < p->layout->depth ? p->end - row : p->layout->depth;
    const ot_view ys = part_of(dy, (ot_matrix_part){row, rows, p->column, p->columns}, p->operand);
    const ot_view xs = part_of(x, (ot_matrix_part){row, rows, 0, C}, p->matrix);
    const ot_gemm product = {.rows = p->columns,
                             .columns = C,
                             .depth = rows,
                             .a = {ys.data, ys.stride, true},
                             .b = {xs.data, xs.stride, false},
                             .c = sum.data,
                             .c_stride = sum.stride,
                             .alpha = 1,
                             .beta = adds ? 1 : 0};
    OT_KERNEL(ot_matrix_multiply_serial)(&product);
    adds = true;
  }
  ot_view_write(dw, part, sum, 1);
}

static void grouped_linear_dw(const ot_kernel_call *call) {
  for_pieces(call, OT_OP_GROUPED_LINEAR_DW, call->in[0].type.dim[1], dw_piece);
}

const ot_kernel_entry OT_KERNEL(ot_grouped_cpu)[] = {
    {OT_OP_GROUPED_LINEAR, grouped_linear},
    {OT_OP_GROUPED_LINEAR_DX, grouped_linear_dx},
    {OT_OP_GROUPED_LINEAR_DW, grouped_linear_dw},
    {OT_OP_COUNT, NULL},
};
