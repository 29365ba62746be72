// SPDX-License-Identifier: Apache-2.0
// Batches as rows, one batch after the other.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "host/heap.h"
#include "judge/assemble_fields.h"

enum { NONE = -1 };

// ---- rows of one batch ----

static ot_status fill_ids(const ot_row_building *b, const ot_batch_fields *f, int32_t *numbers) {
  const ot_field_range range = {
      0, b->step->model.vocab_size - 1, false,
      "ids are of the vocabulary of config.json; padding has an id of it and no label"};
  OT_TRY(ot_field_read(b, f->ids, &range, numbers));
  for (int64_t i = 0; i < f->ids->elements; i++) b->ids[f->batch->first_row + i] = numbers[i];
  return OT_OK;
}

// Row i predicts label i where labels are shifted, else that of the next row of its sequence.
static int64_t label_of_row(const ot_batch_fields *f, int64_t row) {
  if (f->shifted) return row;
  return (row + 1) % f->length == 0 ? -1 : row + 1;
}

static ot_status fill_targets(const ot_row_building *b, const ot_batch_fields *f,
                              int32_t *numbers) {
  const ot_field_range range = {0, b->step->model.vocab_size - 1, true,
                                "labels are of the vocabulary of config.json"};
  OT_TRY(ot_field_read(b, f->labels, &range, numbers));
  for (int64_t i = 0; i < f->ids->elements; i++) {
    const int64_t from = label_of_row(f, i);
    const bool given = from >= 0 && numbers[from] >= 0;
    b->targets[f->batch->first_row + i] = given ? numbers[from] : NONE;
    f->batch->targets += given;
  }
  return OT_OK;
}

static ot_status fill_positions(const ot_row_building *b, const ot_batch_fields *f,
                                int32_t *numbers) {
  const ot_model *const model = &b->step->model;
  const int64_t most = model->learned_positions ? model->max_positions - 1 : INT32_MAX;
  const ot_field_range range = {0, most, false, "positions count from 0 within a document"};
  for (int64_t i = 0; i < f->ids->elements; i++) numbers[i] = (int32_t)(i % f->length);
  if (f->positions != NULL) OT_TRY(ot_field_read(b, f->positions, &range, numbers));
  for (int64_t i = 0; i < f->ids->elements; i++) b->positions[f->batch->first_row + i] = numbers[i];
  return OT_OK;
}

static int compare_integers(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

// Sets the first rows of the documents of one sequence, whose ids are `numbers` [length]; these are
// then used for the ids of its documents.
static ot_status fill_sequence(const ot_row_building *b, const ot_batch_fields *f, int64_t first,
                               int32_t *numbers) {
  int32_t *const documents = b->documents + first;
  int64_t count = 0;
  for (int64_t i = 0; i < f->length; i++) {
    const bool begins = i == 0 || numbers[i] != numbers[count - 1];
    documents[i] = begins ? (int32_t)(first + i) : documents[i - 1];
    if (begins) numbers[count++] = numbers[i];
  }
  qsort(numbers, (size_t)count, sizeof *numbers, compare_integers);
  for (int64_t i = 1; i < count; i++) {
    if (numbers[i - 1] != numbers[i]) continue;
    ot_fail(OT_USAGE, "%s: document %lld is in two parts of sequence %lld",
            ot_field_label(b, f->documents), (long long)numbers[i],
            (long long)((first - f->batch->first_row) / f->length));
    return ot_fail_hint(OT_USAGE, "tokens of a document follow each other; padding is a document");
  }
  return OT_OK;
}

static ot_status fill_documents(const ot_row_building *b, const ot_batch_fields *f,
                                int32_t *numbers) {
  const ot_field_range range = {INT32_MIN, INT32_MAX, false, "number the documents from 0"};
  memset(numbers, 0, (size_t)f->ids->elements * sizeof *numbers);
  if (f->documents != NULL) OT_TRY(ot_field_read(b, f->documents, &range, numbers));
  for (int64_t s = 0; s < f->sequences; s++) {
    const int64_t first = f->batch->first_row + s * f->length;
    for (int64_t i = 0; i < f->length; i++) b->sequences[first + i] = (int32_t)first;
    OT_TRY(fill_sequence(b, f, first, numbers + s * f->length));
  }
  return OT_OK;
}

static ot_status fill_weights(const ot_row_building *b, const ot_batch_fields *f, float *numbers) {
  const ot_recorded_range range = {0, f->ids->elements, OT_F32};
  for (int64_t i = 0; i < f->ids->elements; i++) numbers[i] = 1;
  if (f->weight != NULL)
    OT_TRY(ot_recorded_load(b->step, f->weight, &f->weight->pieces[0], range, numbers));
  for (int64_t i = 0; i < f->ids->elements; i++) {
    const int64_t row = f->batch->first_row + i, from = label_of_row(f, i);
    OT_CHECK(isfinite(numbers[i]), OT_USAGE, "%s: element %lld is %.9g, allowed: finite numbers",
             ot_field_label(b, f->weight), (long long)i, (double)numbers[i]);
    b->weights[row] = b->targets[row] >= 0 ? numbers[from] : 0;
    f->batch->weight += b->weights[row];
  }
  return OT_OK;
}

static ot_status fill_batch(ot_row_building *b, const ot_recorded_tensor *ids, int index,
                            ot_arena *scratch) {
  ot_batch_fields f;
  OT_TRY(ot_fields_find(b, ids, &f));
  f.batch = &b->batch[index];
  *f.batch = (ot_step_batch){.dp_rank = ids->dp_rank,
                             .micro = ids->micro,
                             .rank = ids->pieces[0].rank,
                             .first_row = b->rows->count,
                             .rows = ids->elements,
                             .sequences = f.sequences};
  int32_t *const numbers = ot_arena_array(scratch, ids->elements, sizeof *numbers);
  OT_TRY(fill_ids(b, &f, numbers));
  OT_TRY(fill_targets(b, &f, numbers));
  OT_TRY(fill_positions(b, &f, numbers));
  OT_TRY(fill_documents(b, &f, numbers));
  OT_TRY(fill_weights(b, &f, (float *)numbers));
  for (int64_t i = 0; i < ids->elements; i++) b->batches[b->rows->count + i] = index;
  b->rows->count += ids->elements;
  return OT_OK;
}

// ---- all batches ----

static bool is_ids(const ot_recorded_tensor *tensor) {
  return tensor->kind == OT_RECORDED_BATCH && ot_text_equal(tensor->name, "ids");
}

// Each recorded batch has ids, and ranks with data of their own have batches.
static ot_status check_complete(const ot_row_building *b) {
  const ot_recorded_step *const step = b->step;
  bool *const has = ot_arena_array(b->arena, step->dp_size, sizeof *has);
  for (int64_t i = 0; i < step->num_batches; i++) {
    const ot_recorded_batch *const batch = &step->batches[i];
    const ot_recorded_tensor key = {.kind = OT_RECORDED_BATCH,
                                    .micro = batch->micro,
                                    .dp_rank = step->ranks[batch->rank].dp_rank};
    OT_CHECK(ot_field_find(b, &key, "ids") != NULL, OT_USAGE,
             "%s: batch %d of rank %d has no ids there, nor at ranks with the same data",
             step->path, batch->micro, batch->rank);
    has[key.dp_rank] = true;
  }
  for (int rank = 0; rank < step->world; rank++) {
    if (has[step->ranks[rank].dp_rank]) continue;
    ot_fail(OT_USAGE, "%s: neither rank %d nor another rank with its data recorded a batch",
            step->path, rank);
    return ot_fail_hint(OT_USAGE, "call batch() on every rank, for each micro-batch");
  }
  return OT_OK;
}

static ot_status allocate(ot_row_building *b) {
  int64_t rows = 0;
  for (int64_t i = 0; i < b->step->num_tensors; i++) {
    if (!is_ids(&b->step->tensors[i])) continue;
    rows += b->step->tensors[i].elements;
    b->rows->num_batches++;
    OT_CHECK(rows < INT32_MAX, OT_USAGE, "%s: more than %d tokens", b->step->path, INT32_MAX - 1);
  }
  b->ids = ot_arena_array(b->arena, rows, sizeof *b->ids);
  b->targets = ot_arena_array(b->arena, rows, sizeof *b->targets);
  b->positions = ot_arena_array(b->arena, rows, sizeof *b->positions);
  b->sequences = ot_arena_array(b->arena, rows, sizeof *b->sequences);
  b->documents = ot_arena_array(b->arena, rows, sizeof *b->documents);
  b->batches = ot_arena_array(b->arena, rows, sizeof *b->batches);
  b->weights = ot_arena_array(b->arena, rows, sizeof *b->weights);
  b->batch = ot_arena_array(b->arena, b->rows->num_batches, sizeof *b->batch);
  return OT_OK;
}

ot_status ot_assemble_rows(const ot_recorded_step *step, ot_arena *arena, ot_step_rows *out) {
  ot_row_building b = {.step = step, .arena = arena, .rows = out};
  int index = 0;
  *out = (ot_step_rows){0};
  OT_TRY(check_complete(&b));
  OT_TRY(allocate(&b));
  for (int64_t i = 0; i < step->num_tensors; i++) {
    if (!is_ids(&step->tensors[i])) continue;
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = fill_batch(&b, &step->tensors[i], index++, &scratch);
    ot_heap_release(&heap);
    OT_TRY(status);
  }
  out->ids = b.ids;
  out->targets = b.targets;
  out->positions = b.positions;
  out->sequences = b.sequences;
  out->documents = b.documents;
  out->weights = b.weights;
  out->batches = b.batches;
  out->batch = b.batch;
  out->differences = b.differences;
  return OT_OK;
}
