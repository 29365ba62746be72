// SPDX-License-Identifier: Apache-2.0
// Row lookup in tables, and scatter-add of gradient rows.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/embedding.h"

// Columns of the gradient are distributed in cache lines.
enum { LINE = 16 };

static ot_real factor_of(const ot_kernel_call *call) {
  const double scale = call->attributes->scale;
  return scale == 0 ? 1 : (ot_real)scale;
}

// The ids of a table: `count` from `first` on.
typedef struct window {
  int64_t first, count;
} window;

static window window_of(const ot_kernel_call *call, const ot_tensor *table) {
  const ot_op_attributes *const attributes = call->attributes;
  if (attributes->group_size <= 1) return (window){0, INT64_MAX};
  return (window){attributes->first_vocab, table->type.dim[0]};
}

static bool holds(window ids, int64_t id) { return id >= ids.first && id - ids.first < ids.count; }

static void clear_row(const ot_tensor *y, int64_t row, int64_t columns) {
  const int64_t bytes = columns * ot_dtype_bytes(y->type.dtype);
  memset((char *)y->data + row * bytes, 0, (size_t)bytes);
}

static void gather_row(const ot_kernel_call *call, int64_t row, int64_t columns) {
  ot_real token_scratch[OT_TILE];
  ot_real position_scratch[OT_TILE];
  ot_real out_scratch[OT_TILE];
  const ot_tensor *const y = &call->out[0];
  const int32_t *const positions = call->in[2].data;
  const window ids = window_of(call, &call->in[1]);
  const int64_t token = ((const int32_t *)call->in[0].data)[row];
  if (!holds(ids, token)) {
    clear_row(y, row, columns);
    return;
  }
  const int64_t token_first = (token - ids.first) * columns;
  const int64_t position_first = positions ? positions[row] * columns : 0;
  const ot_real factor = factor_of(call);
  for (int64_t c = 0; c < columns; c += OT_TILE) {
    const int64_t n = columns - c < OT_TILE ? columns - c : OT_TILE;
    const ot_real *const from = ot_tile_in(&call->in[1], token_first + c, n, token_scratch);
    ot_real *const to = ot_tile_out(y, row * columns + c, out_scratch);
    if (positions) {
      const ot_real *const at = ot_tile_in(&call->in[3], position_first + c, n, position_scratch);
#pragma omp simd
      for (int64_t i = 0; i < n; i++) to[i] = from[i] + at[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; i++) to[i] = factor * from[i];
    }
    ot_tile_done(y, row * columns + c, to, n);
  }
}

static void embedding(const ot_kernel_call *call) {
  const int64_t rows = call->out[0].type.dim[0];
  const int64_t columns = call->out[0].type.dim[1];
#pragma omp parallel for num_threads(ot_threads_for(call, rows *columns)) schedule(static)
  for (int64_t row = 0; row < rows; row++) gather_row(call, row, columns);
}

// Adds columns [begin, end) of every row of dy, in order, to the table.
static void scatter_columns(const ot_kernel_call *call, window ids, int64_t begin, int64_t end) {
  ot_real scratch[OT_TILE];
  const ot_tensor *const dy = &call->in[0];
  const int32_t *const tokens = call->in[1].data;
  const int64_t rows = dy->type.dim[0];
  const int64_t columns = dy->type.dim[1];
  const ot_real factor = factor_of(call);
  for (int64_t row = 0; row < rows; row++) {
    if (!holds(ids, tokens[row])) continue;
    ot_real *const to = (ot_real *)call->out[0].data + (tokens[row] - ids.first) * columns;
    for (int64_t c = begin; c < end; c += OT_TILE) {
      const int64_t n = end - c < OT_TILE ? end - c : OT_TILE;
      const ot_real *const from = ot_tile_in(dy, row * columns + c, n, scratch);
#pragma omp simd
      for (int64_t i = 0; i < n; i++) to[c + i] += factor * from[i];
    }
  }
}

static void clear(const ot_kernel_call *call, void *data, int64_t bytes) {
  const int threads = ot_threads_for(call, bytes / 4);
  const int64_t piece = 1 << 20;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t first = 0; first < bytes; first += piece) {
    memset((char *)data + first, 0, (size_t)(bytes - first < piece ? bytes - first : piece));
  }
}

// Rows of dy by id, for a bf16 table.
typedef struct id_rows {
  int32_t *first;  // [ids] first row of each id, -1
  int32_t *next;   // [rows] next row of the same id, -1
} id_rows;

static id_rows find_rows(const ot_kernel_call *call, window ids) {
  const int32_t *const tokens = call->in[1].data;
  const int64_t count = call->out[0].type.dim[0];
  const id_rows found = {call->workspace, (int32_t *)call->workspace + count};
  memset(found.first, -1, (size_t)count * sizeof *found.first);
  for (int64_t row = call->in[0].type.dim[0] - 1; row >= 0; row--) {
    if (!holds(ids, tokens[row])) continue;
    int32_t *const first = &found.first[tokens[row] - ids.first];
    found.next[row] = *first;
    *first = (int32_t)row;
  }
  return found;
}

// Adds columns [c, c + n) of all rows of dy of the id to its row of the table.
static void add_tile_of_id(const ot_kernel_call *call, const id_rows *rows, int64_t id, int64_t c,
                           int64_t n) {
  ot_real scratch[OT_TILE], sum[OT_TILE];
  const ot_tensor *const dy = &call->in[0];
  const ot_tensor *const table = &call->out[0];
  const int64_t columns = dy->type.dim[1];
  const ot_real factor = factor_of(call);
  ot_load_row(sum, table->data, table->type.dtype, id * columns + c, n);
  for (int64_t row = rows->first[id]; row >= 0; row = rows->next[row]) {
    const ot_real *const from = ot_tile_in(dy, row * columns + c, n, scratch);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += factor * from[i];
  }
  ot_store_row(table->data, table->type.dtype, id * columns + c, sum, n);
}

// Like scatter_columns, but id by id: each row of the table is rounded once.
static void scatter_ids(const ot_kernel_call *call, const id_rows *rows, int64_t begin,
                        int64_t end) {
  const int64_t count = call->out[0].type.dim[0];
  for (int64_t id = 0; id < count; id++) {
    if (rows->first[id] < 0) continue;
    for (int64_t c = begin; c < end; c += OT_TILE) {
      const int64_t n = end - c < OT_TILE ? end - c : OT_TILE;
      add_tile_of_id(call, rows, id, c, n);
    }
  }
}

static void add_rows(const ot_kernel_call *call, window ids) {
  const int threads = ot_threads_for(call, ot_type_elements(&call->in[0].type));
  const int64_t columns = call->in[0].type.dim[1];
  const int64_t lines = (columns + LINE - 1) / LINE;
  const int64_t slices = lines < threads ? lines : threads;
  const ot_tensor *const table = &call->out[0];
  if (!call->attributes->accumulate) clear(call, table->data, ot_type_bytes(&table->type));
  const bool narrow = table->type.dtype != OT_REAL_DTYPE;
  const id_rows rows = narrow ? find_rows(call, ids) : (id_rows){0};
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < slices; i++) {
    const int64_t begin = ot_block_begin(lines, slices, i) * LINE;
    const int64_t end = ot_block_begin(lines, slices, i + 1) * LINE;
    const int64_t limit = end < columns ? end : columns;
    if (narrow) {
      scatter_ids(call, &rows, begin, limit);
    } else {
      scatter_columns(call, ids, begin, limit);
    }
  }
}

static void embedding_grad(const ot_kernel_call *call) {
  add_rows(call, window_of(call, &call->out[0]));
}

static void position_grad(const ot_kernel_call *call) { add_rows(call, (window){0, INT64_MAX}); }

const ot_kernel_entry OT_KERNEL(ot_embedding_cpu)[] = {
    {OT_OP_EMBEDDING, embedding},
    {OT_OP_EMBEDDING_GRAD, embedding_grad},
    {OT_OP_POSITION_GRAD, position_grad},
    {OT_OP_COUNT, NULL},
};
