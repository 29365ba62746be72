// SPDX-License-Identifier: Apache-2.0
// This process's elements of tensors to their places in files, without a copy where memory and file
// have the same order. Tensors in another order are put together in blocks of file rows; a map of
// the elements given tells which runs of a block belong to this process.
#include <string.h>

#include "checkpoint/weights.h"

enum { TURN_BYTES_MAX = 1 << 26 };

static bool is_turned(const ot_weight_tensor *tensor) {
  return tensor->transposed || tensor->interleaved;
}

void ot_weight_turn_build(ot_arena *arena, const ot_weight_map *map, ot_weight_turn *turn) {
  const int64_t widest = ot_dtype_bytes(OT_F64);
  *turn = (ot_weight_turn){0};
  for (int i = 0; i < map->num_tensors; i++) {
    const ot_weight_tensor *const tensor = &map->tensors[i];
    if (!is_turned(tensor)) continue;
    const int64_t row = tensor->rows * widest, all = row * tensor->cols;
    const int64_t wanted = all < TURN_BYTES_MAX ? all : row > TURN_BYTES_MAX ? row : TURN_BYTES_MAX;
    if (wanted > turn->bytes) turn->bytes = wanted;
  }
  if (turn->bytes == 0) return;
  turn->block = ot_arena_take(arena, turn->bytes);
  turn->given = ot_arena_take(arena, turn->bytes);
}

// Elements [done, *count) of a run, at most *count of them, as far as the stage has room.
static const char *load(const ot_weight_writing *what, const ot_weight_run *run, int64_t done,
                        int64_t *count) {
  const ot_weight_memory *const m = what->memory;
  const int64_t size = ot_dtype_bytes(what->dtype), offset = run->offset + done * size;
  *count = run->count - done;
  if (m->host) return m->host + offset;
  if (*count > m->stage_bytes / size) *count = m->stage_bytes / size;
  m->read(m->context, offset, m->stage, *count * size);
  return m->stage;
}

// ---- the same order ----

static ot_status write_straight(const ot_weight_writing *what, const ot_weight_tensor *tensor,
                                ot_weight_place place) {
  for (int i = 0; i < tensor->num_pieces; i++) {
    const ot_weight_slice *const piece = &tensor->pieces[i];
    // From elements of the parameter to those of the file's tensor.
    const int64_t shift = place.first + (piece->hf_first - piece->first_row) * tensor->cols;
    for (int64_t k = 0; k < what->runs[i].num; k++) {
      const ot_weight_run *const run = &what->runs[i].run[k];
      for (int64_t done = 0, count; done < run->count; done += count) {
        const char *const data = load(what, run, done, &count);
        const ot_safetensors_range range = {place.tensor, run->element + done + shift, count};
        OT_TRY(ot_safetensors_write(what->writer, range, data));
      }
    }
  }
  return OT_OK;
}

// ---- another order ----

// Rows [first, first + count) of the file are columns of a tensor of ours.
typedef struct turned_block {
  const ot_weight_tensor *tensor;
  const ot_weight_slice *piece;
  const ot_weight_turn *turn;
  int64_t size;  // bytes of an element
  int64_t first, count;
} turned_block;

// Elements of our row `row` of the piece's parameter, from column `column` on.
static void turn_row(const turned_block *b, int64_t row, int64_t column, int64_t count,
                     const char *data) {
  const int64_t rows = b->tensor->rows;
  const int64_t place =
      ot_weight_file_row(b->tensor, row - b->piece->first_row + b->piece->hf_first);
  const int64_t begin = column > b->first ? column : b->first;
  const int64_t last = b->first + b->count;
  const int64_t end = column + count < last ? column + count : last;
  for (int64_t i = begin; i < end; i++) {
    const int64_t at = (i - b->first) * rows + place;
    memcpy(b->turn->block + at * b->size, data + (i - column) * b->size, (size_t)b->size);
    b->turn->given[at] = 1;
  }
}

static void turn_elements(const turned_block *b, int64_t element, int64_t count, const char *from) {
  const int64_t cols = b->tensor->cols;
  while (count > 0) {
    const int64_t row = element / cols, column = element % cols;
    const int64_t part = count < cols - column ? count : cols - column;
    turn_row(b, row, column, part, from);
    element += part;
    count -= part;
    from += part * b->size;
  }
}

static ot_status write_given(const ot_weight_writing *what, const turned_block *b,
                             ot_weight_place place) {
  const int64_t count = b->count * b->tensor->rows, first = b->first * b->tensor->rows;
  const unsigned char *const given = b->turn->given;
  for (int64_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && given[end] == given[i];) end++;
    if (!given[i]) continue;
    const ot_safetensors_range range = {place.tensor, place.first + first + i, end - i};
    OT_TRY(ot_safetensors_write(what->writer, range, b->turn->block + i * b->size));
  }
  return OT_OK;
}

static void turn_runs(const ot_weight_writing *what, const turned_block *b,
                      const ot_weight_runs *runs) {
  for (int64_t k = 0; k < runs->num; k++) {
    const ot_weight_run *const run = &runs->run[k];
    for (int64_t done = 0, count; done < run->count; done += count) {
      const char *const data = load(what, run, done, &count);
      turn_elements(b, run->element + done, count, data);
    }
  }
}

static ot_status write_turned(const ot_weight_writing *what, const ot_weight_tensor *tensor,
                              ot_weight_place place) {
  turned_block b = {.tensor = tensor, .turn = what->turn, .size = ot_dtype_bytes(what->dtype)};
  const int64_t fit = what->turn->bytes / (tensor->rows * b.size);
  for (; b.first < tensor->cols; b.first += b.count) {
    b.count = tensor->cols - b.first < fit ? tensor->cols - b.first : fit;
    memset(what->turn->given, 0, (size_t)(b.count * tensor->rows));
    for (int i = 0; i < tensor->num_pieces; i++) {
      b.piece = &tensor->pieces[i];
      turn_runs(what, &b, &what->runs[i]);
    }
    OT_TRY(write_given(what, &b, place));
  }
  return OT_OK;
}

ot_status ot_weights_write(const ot_weight_writing *what, int tensor, ot_weight_place place) {
  const ot_weight_tensor *const t = &what->map->tensors[tensor];
  return is_turned(t) ? write_turned(what, t, place) : write_straight(what, t, place);
}
