// SPDX-License-Identifier: Apache-2.0
// HF tensors from rows of parameters. A tensor that HF stores transposed is staged whole, others a
// few rows at a time.
#include <string.h>

#include "base/text.h"
#include "checkpoint/elements.h"
#include "checkpoint/weight_stack.h"
#include "checkpoint/weights.h"

enum { BLOCK_BYTES = 1 << 20, TILE_COLUMNS = 32 };

void ot_weight_stage_build(ot_arena *arena, const ot_weight_map *map,
                           const ot_weight_access *access, ot_weight_stage *stage) {
  int64_t cols = 1;
  for (int i = 0; i < map->num_tensors; i++)
    if (map->tensors[i].cols > cols) cols = map->tensors[i].cols;
  // fp64 is the widest type that an element passes through.
  const int64_t row_bytes = cols * ot_dtype_bytes(OT_F64);
  *stage = (ot_weight_stage){.map = map, .access = access};
  stage->block_rows = row_bytes < BLOCK_BYTES ? BLOCK_BYTES / row_bytes : 1;
  stage->block = ot_arena_array(arena, stage->block_rows, row_bytes);
  stage->turned = ot_arena_array(arena, stage->block_rows, row_bytes);
}

// The part that holds row `row` of `tensor`.
static const ot_weight_slice *piece_of(const ot_weight_tensor *tensor, int64_t row) {
  const ot_weight_slice *piece = tensor->pieces;
  while (row >= piece->hf_first + piece->rows) piece++;
  return piece;
}

static ot_status read_rows(const ot_weight_stage *stage, const ot_weight_tensor *tensor,
                           int64_t row, int64_t rows, void *to) {
  const int64_t row_bytes = tensor->cols * ot_dtype_bytes(stage->access->dtype);
  for (int64_t done = 0; done < rows;) {
    const ot_weight_slice *const piece = piece_of(tensor, row + done);
    const int64_t skipped = row + done - piece->hf_first;
    const int64_t left = rows - done < piece->rows - skipped ? rows - done : piece->rows - skipped;
    const ot_weight_slice part = {piece->parameter, piece->first_row + skipped, left, row + done};
    OT_TRY(stage->access->read(stage->access->context, &part, (char *)to + done * row_bytes));
    done += left;
  }
  return OT_OK;
}

// Elements [first, first + count) of row-major [rows, cols].
static ot_status assemble_rows(ot_weight_stage *stage, const ot_weight_tensor *tensor,
                               ot_safetensors_range range, ot_dtype dtype, char *out) {
  const ot_dtype stored = stage->access->dtype;
  const int64_t cols = tensor->cols;
  for (int64_t done = 0; done < range.count;) {
    const int64_t row = (range.first + done) / cols;
    const int64_t skipped = (range.first + done) % cols;
    const int64_t wanted = (skipped + range.count - done + cols - 1) / cols;
    const int64_t rows = wanted < stage->block_rows ? wanted : stage->block_rows;
    OT_TRY(read_rows(stage, tensor, row, rows, stage->block));
    const int64_t there = rows * cols - skipped;
    const int64_t count = there < range.count - done ? there : range.count - done;
    ot_elements_convert(stored, (char *)stage->block + skipped * ot_dtype_bytes(stored), dtype,
                        out + done * ot_dtype_bytes(dtype), count);
    done += count;
  }
  return OT_OK;
}

static int64_t ceil_divide(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

static void scatter(const char *from, int64_t count, int64_t bytes, char *to, int64_t stride) {
  switch (bytes) {
    case 2:
      for (int64_t i = 0; i < count; i++) memcpy(to + i * stride * 2, from + i * 2, 2);
      return;
    case 4:
      for (int64_t i = 0; i < count; i++) memcpy(to + i * stride * 4, from + i * 4, 4);
      return;
    default:
      for (int64_t i = 0; i < count; i++)
        memcpy(to + i * stride * bytes, from + i * bytes, (size_t)bytes);
  }
}

// A tensor of [cols, rows]: its element i * rows + j is column i of our row j.
typedef struct turned_range {
  const ot_weight_tensor *tensor;
  int64_t rows, cols;
  int64_t first, end;  // elements
  int64_t bytes;       // per element
  char *out;           // of element `first`
} turned_range;

// Writes columns [begin, end) of row j, given at `row`, that are in the range.
static void turn_row(const turned_range *range, int64_t j, const char *row, int64_t begin,
                     int64_t end) {
  const int64_t low = ceil_divide(range->first - j, range->rows);
  const int64_t high = ceil_divide(range->end - j, range->rows);
  const int64_t from = begin > low ? begin : low;
  const int64_t to = end < high ? end : high;
  if (from >= to) return;
  scatter(row + from * range->bytes, to - from, range->bytes,
          range->out + (from * range->rows + j - range->first) * range->bytes, range->rows);
}

// Processes blocks of columns, so that the written cache lines stay in cache between rows.
static void turn_rows(const turned_range *range, int64_t first_row, int64_t rows,
                      const char *block) {
  for (int64_t column = 0; column < range->cols; column += TILE_COLUMNS) {
    const int64_t end = column + TILE_COLUMNS < range->cols ? column + TILE_COLUMNS : range->cols;
    for (int64_t row = 0; row < rows; row++)
      turn_row(range, ot_weight_file_row(range->tensor, first_row + row),
               block + row * range->cols * range->bytes, column, end);
  }
}

static ot_status assemble_columns(ot_weight_stage *stage, const ot_weight_tensor *tensor,
                                  ot_safetensors_range range, ot_dtype dtype, char *out) {
  const turned_range turned = {tensor,
                               tensor->rows,
                               tensor->cols,
                               range.first,
                               range.first + range.count,
                               ot_dtype_bytes(dtype),
                               out};
  for (int64_t row = 0; row < tensor->rows; row += stage->block_rows) {
    const int64_t left = tensor->rows - row;
    const int64_t rows = left < stage->block_rows ? left : stage->block_rows;
    OT_TRY(read_rows(stage, tensor, row, rows, stage->block));
    ot_elements_convert(stage->access->dtype, stage->block, dtype, stage->turned,
                        rows * tensor->cols);
    turn_rows(&turned, row, rows, stage->turned);
  }
  return OT_OK;
}

ot_status ot_weights_assemble(ot_weight_stage *stage, ot_safetensors_range range, ot_dtype dtype,
                              void *out) {
  const ot_weight_tensor *const tensor = &stage->map->tensors[range.tensor];
  OT_ASSERT(range.first >= 0 && range.first + range.count <= tensor->rows * tensor->cols);
  if (tensor->transposed || tensor->interleaved)
    return assemble_columns(stage, tensor, range, dtype, out);
  return assemble_rows(stage, tensor, range, dtype, out);
}

// ---- sources ----

typedef struct source_context {
  ot_weight_stage *stage;
  int tensor;
  ot_dtype dtype;
} source_context;

static ot_status fill_source(void *context, int64_t first, int64_t count, void *out) {
  const source_context *const c = context;
  return ot_weights_assemble(c->stage, (ot_safetensors_range){c->tensor, first, count}, c->dtype,
                             out);
}

void ot_weight_sources_build(ot_arena *arena, const ot_weight_export *what,
                             ot_tensor_source *sources, int *count, ot_weight_place *places) {
  const ot_weight_map *const map = what->map;
  ot_weight_stage *const stage = ot_arena_take(arena, sizeof *stage);
  ot_weight_stage_build(arena, map, what->access, stage);
  ot_weight_place *const made = ot_arena_array(arena, map->num_tensors, sizeof *made);
  *count = 0;
  for (int i = 0; i < map->num_tensors; i++) {
    if (what->selected != NULL && !what->selected[i]) continue;
    made[*count] = (ot_weight_place){*count, 0};
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
  // Only this program reads optimizer files.
  if (what->prefix[0] == '\0') ot_weight_stacks_join(arena, sources, count, made);
  for (int i = 0, next = 0; places != NULL && i < map->num_tensors; i++) {
    const bool saved = what->selected == NULL || what->selected[i];
    places[i] = saved ? made[next++] : (ot_weight_place){-1, 0};
  }
}
