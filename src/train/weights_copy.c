// SPDX-License-Identifier: Apache-2.0
// Tensors in HF's order from rows of parameters. A tensor that HF stores transposed is staged
// whole, the others go through a few rows at a time.
#include <string.h>

#include "base/text.h"
#include "train/elements.h"
#include "train/weights.h"

enum { BLOCK_BYTES = 1 << 20 };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

void ot_weight_stage_build(ot_arena *arena, const ot_weight_map *map,
                           const ot_weight_access *access, ot_weight_stage *stage) {
  int64_t cols = 1, rows = 1, transposed = 0;
  for (int i = 0; i < map->num_tensors; i++) {
    const ot_weight_tensor *const tensor = &map->tensors[i];
    cols = larger(cols, tensor->cols);
    rows = larger(rows, tensor->rows);
    if (tensor->transposed) transposed = larger(transposed, tensor->rows * tensor->cols);
  }
  // fp64 is the widest type that an element passes through.
  const int64_t width = ot_dtype_bytes(OT_F64);
  *stage = (ot_weight_stage){.map = map, .access = access, .staged = -1};
  stage->block_rows = larger(1, BLOCK_BYTES / (cols * width));
  stage->block = ot_arena_array(arena, larger(transposed, stage->block_rows * cols), width);
  stage->row = ot_arena_array(arena, larger(rows, cols), width);
}

// The piece that holds row `row` of `tensor`.
static const ot_weight_piece *piece_of(const ot_weight_tensor *tensor, int64_t row) {
  const ot_weight_piece *piece = tensor->pieces;
  while (row >= piece->hf_first + piece->rows) piece++;
  return piece;
}

static void read_rows(const ot_weight_stage *stage, const ot_weight_tensor *tensor, int64_t row,
                      int64_t rows, void *to) {
  const int64_t row_bytes = tensor->cols * ot_dtype_bytes(stage->access->dtype);
  for (int64_t done = 0; done < rows;) {
    const ot_weight_piece *const piece = piece_of(tensor, row + done);
    const int64_t skipped = row + done - piece->hf_first;
    const int64_t left = rows - done < piece->rows - skipped ? rows - done : piece->rows - skipped;
    const ot_weight_piece part = {piece->parameter, piece->first_row + skipped, left, row + done};
    stage->access->read(stage->access->context, &part, (char *)to + done * row_bytes);
    done += left;
  }
}

// Elements [first, first + count) of row-major [rows, cols].
static void assemble_rows(ot_weight_stage *stage, const ot_weight_tensor *tensor,
                          ot_safetensors_range range, ot_dtype dtype, char *out) {
  const ot_dtype stored = stage->access->dtype;
  const int64_t cols = tensor->cols;
  for (int64_t done = 0; done < range.count;) {
    const int64_t row = (range.first + done) / cols;
    const int64_t skipped = (range.first + done) % cols;
    const int64_t wanted = (skipped + range.count - done + cols - 1) / cols;
    const int64_t rows = wanted < stage->block_rows ? wanted : stage->block_rows;
    read_rows(stage, tensor, row, rows, stage->block);
    const int64_t there = rows * cols - skipped;
    const int64_t count = there < range.count - done ? there : range.count - done;
    ot_elements_convert(stored, (char *)stage->block + skipped * ot_dtype_bytes(stored), dtype,
                        out + done * ot_dtype_bytes(dtype), count);
    done += count;
  }
}

// Element [i, j] of a matrix [_, stride] at `from`, for j of one column and i in [first, first +
// n).
static void gather_column(const char *from, int64_t stride, int64_t n, int64_t bytes, char *to) {
  for (int64_t i = 0; i < n; i++) memcpy(to + i * bytes, from + i * stride * bytes, (size_t)bytes);
}

// Elements of [cols, rows], from the staged [rows, cols].
static void assemble_columns(ot_weight_stage *stage, const ot_weight_tensor *tensor,
                             ot_safetensors_range range, ot_dtype dtype, char *out) {
  if (stage->staged != range.tensor) read_rows(stage, tensor, 0, tensor->rows, stage->block);
  stage->staged = range.tensor;
  const ot_dtype stored = stage->access->dtype;
  const int64_t bytes = ot_dtype_bytes(stored);
  for (int64_t done = 0; done < range.count;) {
    const int64_t column = (range.first + done) / tensor->rows;
    const int64_t row = (range.first + done) % tensor->rows;
    const int64_t left = tensor->rows - row;
    const int64_t count = left < range.count - done ? left : range.count - done;
    const char *const from = (const char *)stage->block + (row * tensor->cols + column) * bytes;
    gather_column(from, tensor->cols, count, bytes, stage->row);
    ot_elements_convert(stored, stage->row, dtype, out + done * ot_dtype_bytes(dtype), count);
    done += count;
  }
}

void ot_weights_assemble(ot_weight_stage *stage, ot_safetensors_range range, ot_dtype dtype,
                         void *out) {
  const ot_weight_tensor *const tensor = &stage->map->tensors[range.tensor];
  OT_ASSERT(range.first >= 0 && range.first + range.count <= tensor->rows * tensor->cols);
  // What was staged may have changed since a first range was asked for.
  if (range.first == 0) stage->staged = -1;
  if (tensor->transposed) {
    assemble_columns(stage, tensor, range, dtype, out);
  } else {
    stage->staged = -1;
    assemble_rows(stage, tensor, range, dtype, out);
  }
}

// ---- sources ----

typedef struct source_context {
  ot_weight_stage *stage;
  int tensor;
  ot_dtype dtype;
} source_context;

static ot_status fill_source(void *context, int64_t first, int64_t count, void *out) {
  const source_context *const c = context;
  ot_weights_assemble(c->stage, (ot_safetensors_range){c->tensor, first, count}, c->dtype, out);
  return OT_OK;
}

void ot_weight_sources_build(ot_arena *arena, const ot_weight_export *what,
                             ot_tensor_source *sources, int *count) {
  const ot_weight_map *const map = what->map;
  ot_weight_stage *const stage = ot_arena_take(arena, sizeof *stage);
  ot_weight_stage_build(arena, map, what->access, stage);
  *count = 0;
  for (int i = 0; i < map->num_tensors; i++) {
    if (what->selected != NULL && !what->selected[i]) continue;
    const ot_weight_tensor *const tensor = &map->tensors[i];
    source_context *const context = ot_arena_take(arena, sizeof *context);
    *context = (source_context){stage, i, what->dtype};
    sources[(*count)++] =
        (ot_tensor_source){.name = ot_arena_format(arena, "%s%s", what->prefix, tensor->name),
                           .dtype = what->dtype,
                           .rank = tensor->rank,
                           .dim = {tensor->dim[0], tensor->dim[1]},
                           .fill = fill_source,
                           .context = context};
  }
}
