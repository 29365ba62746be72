// SPDX-License-Identifier: Apache-2.0
// Products of experts: a piece of work is an expert and a block of columns, done by one thread,
// which widens its part of the matrix once and passes over the expert's rows tile by tile. Threads
// take the next piece when they are done with one: experts differ in rows. What a piece makes does
// not depend on who makes it.
#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "ops/grouped.h"
#include "ops/matrix.h"
#include "ops/route.h"
#include "ops/view.h"

// One op and one of its pieces.
typedef struct piece {
  const ot_kernel_call *call;
  const ot_grouped_layout *layout;
  int64_t expert;
  int64_t begin, end;                  // rows of the expert
  int64_t column, columns;             // of the result
  ot_real *matrix, *operand, *result;  // scratch of the thread
} piece;

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

// Part `part` of `tensor`, in `scratch` if it must be widened.
static ot_view part_of(const ot_tensor *tensor, ot_region part, ot_real *scratch) {
  return ot_view_read(tensor, part, scratch, 1);
}

// ---- y and dx: tiles of rows ----

// Rows [row, row + tile) of the operand, those behind the expert's last as zeros.
static ot_view tile_of(const piece *p, int64_t row) {
  const ot_tensor *const x = &p->call->in[0];
  const int64_t tile = p->layout->tile;
  const int64_t depth = p->layout->depth;
  const bool whole = row + tile <= p->end;
  if (whole && x->type.dtype == OT_REAL_DTYPE) {
    return ot_view_of(x, (ot_region){row, tile, 0, depth}, NULL);
  }
  const int64_t rows = whole ? tile : p->end - row;
  ot_load_row(p->operand, x->data, x->type.dtype, row * depth, rows * depth);
  memset(p->operand + rows * depth, 0, (size_t)((tile - rows) * depth) * sizeof(ot_real));
  return (ot_view){p->operand, depth};
}

// The result has its rows written whatever the shape of the tile that made them.
static void make_tile(const piece *p, int64_t row, ot_factor matrix) {
  const ot_tensor *const y = &p->call->out[0];
  const int64_t tile = p->layout->tile;
  const ot_view x = tile_of(p, row);
  const ot_product product = {.rows = tile,
                              .columns = p->columns,
                              .depth = p->layout->depth,
                              .a = {x.data, x.stride, false},
                              .b = matrix,
                              .c = p->result,
                              .c_stride = p->columns,
                              .alpha = 1};
  OT_KERNEL(ot_matrix_multiply_serial)(&product);
  const int64_t rows = row + tile <= p->end ? tile : p->end - row;
  for (int64_t r = 0; r < rows; r++) {
    ot_store_row(y->data, y->type.dtype, (row + r) * y->type.dim[1] + p->column,
                 p->result + r * p->columns, p->columns);
  }
}

static void make_tiles(const piece *p, ot_factor matrix) {
  for (int64_t row = p->begin; row < p->end; row += p->layout->tile) make_tile(p, row, matrix);
}

static void clear_unused(const ot_kernel_call *call) {
  const ot_tensor *const y = &call->out[0];
  const int64_t used = ((const int32_t *)call->in[2].data)[ot_route_held(call->attributes)];
  const int64_t bytes = y->type.dim[1] * ot_dtype_bytes(y->type.dtype);
  memset((char *)y->data + used * bytes, 0, (size_t)((y->type.dim[0] - used) * bytes));
}

static void forward_piece(const piece *p) {
  const int64_t O = p->call->out[0].type.dim[1];
  const ot_region part = {p->expert * O + p->column, p->columns, 0, p->layout->depth};
  if (p->begin == p->end) return;
  const ot_view w = part_of(&p->call->in[1], part, p->matrix);
  make_tiles(p, (ot_factor){w.data, w.stride, true});
}

static void grouped_linear(const ot_kernel_call *call) {
  clear_unused(call);
  for_pieces(call, OT_OP_GROUPED_LINEAR, call->out[0].type.dim[1], forward_piece);
}

static void dx_piece(const piece *p) {
  const int64_t O = p->layout->depth;
  const ot_region part = {p->expert * O, O, p->column, p->columns};
  if (p->begin == p->end) return;
  const ot_view w = part_of(&p->call->in[1], part, p->matrix);
  make_tiles(p, (ot_factor){w.data, w.stride, false});
}

static void grouped_linear_dx(const ot_kernel_call *call) {
  clear_unused(call);
  for_pieces(call, OT_OP_GROUPED_LINEAR_DX, call->out[0].type.dim[1], dx_piece);
}

// ---- dw: sums over rows ----

// Rows [column, column + columns) of dw[e], some rows of the expert at a time.
static void dw_piece(const piece *p) {
  const ot_tensor *const dy = &p->call->in[0];
  const ot_tensor *const x = &p->call->in[1];
  const int64_t O = dy->type.dim[1];
  const int64_t C = x->type.dim[1];
  ot_real *const dw = (ot_real *)p->call->out[0].data + (p->expert * O + p->column) * C;
  bool adds = p->call->attributes->accumulate;
  if (!adds && p->begin == p->end) memset(dw, 0, (size_t)(p->columns * C) * sizeof *dw);
  for (int64_t row = p->begin; row < p->end; row += p->layout->depth) {
    const int64_t rows = p->end - row < p->layout->depth ? p->end - row : p->layout->depth;
    const ot_view ys = part_of(dy, (ot_region){row, rows, p->column, p->columns}, p->operand);
    const ot_view xs = part_of(x, (ot_region){row, rows, 0, C}, p->matrix);
    const ot_product product = {.rows = p->columns,
                                .columns = C,
                                .depth = rows,
                                .a = {ys.data, ys.stride, true},
                                .b = {xs.data, xs.stride, false},
                                .c = dw,
                                .c_stride = C,
                                .alpha = 1,
                                .beta = adds ? 1 : 0};
    OT_KERNEL(ot_matrix_multiply_serial)(&product);
    adds = true;
  }
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
