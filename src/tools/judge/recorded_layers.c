// SPDX-License-Identifier: Apache-2.0
#include "judge/recorded_layers.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

// ---- names ----

// The number after "layers." or "h." at the beginning of a part of the name.
static int number_at(const char *part, const char **rest) {
  static const char *const lists[] = {"layers.", "h."};
  for (int i = 0; i < OT_COUNT(lists); i++) {
    if (!ot_text_starts_with(part, lists[i])) continue;
    const char *at = part + ot_text_length(lists[i]);
    int number = ot_is_digit(*at) ? 0 : -1;
    for (; ot_is_digit(*at) && number < OT_MAX_LAYERS; at++) number = 10 * number + *at - '0';
    *rest = at;
    return *at == '\0' || *at == '.' ? number : -1;
  }
  return -1;
}

int ot_layer_of_module(const char *name, const char **rest) {
  for (const char *part = name; part != NULL; part = strchr(part, '.')) {
    if (*part == '.') part++;
    const int layer = number_at(part, rest);
    if (layer >= 0) return layer;
  }
  return -1;
}

// ---- tensors ----

// Batches are in the order of dp_rank and micro; -1: the record has no such batch.
static int64_t batch_of(const ot_step_rows *rows, const ot_recorded_tensor *t) {
  int64_t low = 0, high = rows->num_batches;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const ot_step_batch *const b = &rows->batch[middle];
    if (b->dp_rank == t->dp_rank && b->micro == t->micro) return middle;
    if (b->dp_rank < t->dp_rank || (b->dp_rank == t->dp_rank && b->micro < t->micro)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return -1;
}

static bool fits(const ot_recorded_layers *l, const ot_recorded_tensor *t, int64_t batch) {
  return t->num_dims >= 2 && t->shape[t->num_dims - 1] == l->width &&
         t->elements == l->rows->batch[batch].rows * l->width;
}

static void add(ot_recorded_layers *l, const ot_recorded_tensor *t, ot_arena *arena) {
  const char *rest;
  const int layer = ot_layer_of_module(t->name, &rest);
  const int64_t batch = batch_of(l->rows, t);
  const bool whole = l->kind == OT_RECORDED_ROUTES || *rest == '\0';
  if (layer < 0 || layer >= l->step->model.num_layers || !whole || batch < 0) return;
  if (!fits(l, t, batch)) {
    l->left_out++;
    return;
  }
  l->list = ot_arena_grow(arena, l->list, l->count, &l->capacity, sizeof *l->list);
  l->list[l->count++] = (ot_layer_tensor){layer, batch, t};
}

ot_recorded_layers ot_recorded_layers_find(const ot_recorded_step *step, const ot_step_rows *rows,
                                           ot_recorded_kind kind, int64_t width, ot_arena *arena) {
  ot_recorded_layers found = {.step = step, .rows = rows, .kind = kind, .width = width};
  for (int64_t i = 0; i < step->num_tensors; i++) {
    if (step->tensors[i].kind == kind) add(&found, &step->tensors[i], arena);
  }
  return found;
}

int64_t ot_recorded_layers_lack(const ot_recorded_layers *l, int layer, ot_arena *scratch) {
  bool *const found = ot_arena_array(scratch, l->rows->num_batches, sizeof *found);
  for (int64_t i = 0; i < l->count; i++) {
    if (l->list[i].layer == layer) found[l->list[i].batch] = true;
  }
  for (int64_t b = 0; b < l->rows->num_batches; b++) {
    if (!found[b]) return b;
  }
  return -1;
}

// ---- values ----

// The row of the batch that a row of the tensor is. Software may put sequences innermost.
static int64_t row_of(const ot_recorded_tensor *t, const ot_step_batch *batch, int64_t row) {
  const int64_t sequences = batch->sequences, length = batch->rows / sequences;
  const bool turned =
      t->num_dims == 3 && t->shape[0] == length && t->shape[1] == sequences && sequences != length;
  return turned ? row % sequences * length + row / sequences : row;
}

static ot_status read_one(const ot_recorded_layers *l, const ot_layer_tensor *at, ot_arena *scratch,
                          double *out, bool *known) {
  const ot_recorded_tensor *const t = at->tensor;
  const ot_step_batch *const batch = &l->rows->batch[at->batch];
  ot_recorded_view view = {.tensor = t, .elements = t->elements, .num_dims = t->num_dims};
  memcpy(view.shape, t->shape, sizeof view.shape);
  const ot_assembly_request whole = {.view = &view, .count = t->elements, .dtype = OT_F64};
  double *const values = ot_arena_array(scratch, t->elements, sizeof *values);
  ot_assembly copies;
  OT_TRY(ot_assemble(l->step, &whole, scratch, values, &copies));
  if (copies.differing_axes != 0) return OT_OK;
  for (int64_t i = 0; i < batch->rows; i++) {
    const int64_t row = batch->first_row + row_of(t, batch, i);
    memcpy(out + row * l->width, values + i * l->width, (size_t)l->width * sizeof *out);
    known[row] = true;
  }
  return OT_OK;
}

ot_status ot_recorded_layers_read(const ot_recorded_layers *l, int layer, ot_arena *scratch,
                                  double *out, bool *known) {
  memset(known, 0, (size_t)l->rows->count * sizeof *known);
  for (int64_t i = 0; i < l->count; i++) {
    if (l->list[i].layer == layer) OT_TRY(read_one(l, &l->list[i], scratch, out, known));
  }
  return OT_OK;
}
