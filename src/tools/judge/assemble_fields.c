// SPDX-License-Identifier: Apache-2.0
// The fields of batches. Each is read where it was recorded first; other ranks that should have it
// are compared with that.
#include "judge/assemble_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/name_list.h"
#include "base/text.h"

enum { LOAD_BYTES = 1 << 15, IGNORED = -100, NONE = -1 };

const char *ot_field_label(const ot_row_building *b, const ot_recorded_tensor *field) {
  return ot_arena_format(b->arena, "%s: tensor %s/%d.%s",
                         b->step->ranks[field->pieces[0].rank].tensor_file,
                         ot_recorded_kind_name(field->kind), field->micro, field->name);
}

static int64_t integer_at(ot_dtype dtype, const void *block, int64_t i) {
  return dtype == OT_I32 ? ((const int32_t *)block)[i] : ((const int64_t *)block)[i];
}

static ot_status check_integer(const ot_row_building *b, const ot_recorded_tensor *field,
                               const ot_field_range *range, int64_t element, int64_t value) {
  if (value >= range->least && value <= range->most) return OT_OK;
  if (range->may_ignore && (value == IGNORED || value == NONE)) return OT_OK;
  ot_fail(OT_USAGE, "%s: element %lld is %lld, allowed: %lld to %lld%s", ot_field_label(b, field),
          (long long)element, (long long)value, (long long)range->least, (long long)range->most,
          range->may_ignore ? ", and -100 or -1 for none" : "");
  return ot_fail_hint(OT_USAGE, "%s", range->hint);
}

ot_status ot_field_read(const ot_row_building *b, const ot_recorded_tensor *field,
                        const ot_field_range *range, int32_t *out) {
  _Alignas(8) char block[LOAD_BYTES];
  const int64_t most = LOAD_BYTES / ot_dtype_bytes(field->dtype);
  for (int64_t first = 0; first < field->elements; first += most) {
    const int64_t left = field->elements - first, count = left < most ? left : most;
    const ot_recorded_range part = {first, count, field->dtype};
    OT_TRY(ot_recorded_load(b->step, field, &field->pieces[0], part, block));
    for (int64_t i = 0; i < count; i++) {
      const int64_t value = integer_at(field->dtype, block, i);
      OT_TRY(check_integer(b, field, range, first + i, value));
      out[first + i] = (int32_t)value;
    }
  }
  return OT_OK;
}

// ---- copies ----

static ot_status equal_pieces(const ot_row_building *b, const ot_recorded_tensor *field,
                              const ot_recorded_piece *piece, bool *equal) {
  _Alignas(8) char block[LOAD_BYTES], other[LOAD_BYTES];
  const int64_t bytes = ot_dtype_bytes(field->dtype), most = LOAD_BYTES / bytes;
  *equal = true;
  for (int64_t first = 0; first < field->elements && *equal; first += most) {
    const int64_t left = field->elements - first, count = left < most ? left : most;
    const ot_recorded_range part = {first, count, field->dtype};
    OT_TRY(ot_recorded_load(b->step, field, &field->pieces[0], part, block));
    OT_TRY(ot_recorded_load(b->step, field, piece, part, other));
    *equal = memcmp(block, other, (size_t)(count * bytes)) == 0;
  }
  return OT_OK;
}

static ot_status compare_copies(ot_row_building *b, const ot_recorded_tensor *field) {
  for (int i = 1; field != NULL && i < field->num_pieces; i++) {
    bool equal;
    OT_TRY(equal_pieces(b, field, &field->pieces[i], &equal));
    if (equal) continue;
    b->differences = ot_arena_grow(b->arena, b->differences, b->rows->num_differences, &b->capacity,
                                   sizeof *b->differences);
    b->differences[b->rows->num_differences++] =
        (ot_batch_difference){.dp_rank = field->dp_rank,
                              .micro = field->micro,
                              .field = field->name,
                              .rank = field->pieces[i].rank,
                              .other = field->pieces[0].rank};
  }
  return OT_OK;
}

// ---- fields ----

static int compare_key(const void *key, const void *item) {
  const ot_recorded_tensor *const a = key, *const b = item;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  const int by_name = ot_text_compare(a->name, b->name);
  if (by_name != 0) return by_name;
  if (a->dp_rank != b->dp_rank) return a->dp_rank < b->dp_rank ? -1 : 1;
  return (a->micro > b->micro) - (a->micro < b->micro);
}

const ot_recorded_tensor *ot_field_find(const ot_row_building *b, const ot_recorded_tensor *ids,
                                        const char *name) {
  ot_recorded_tensor key = *ids;
  key.name = name;
  return bsearch(&key, b->step->tensors, (size_t)b->step->num_tensors, sizeof key, compare_key);
}

// Fields have the shape of the ids, and each rank has them whole.
static ot_status check_field(const ot_row_building *b, const ot_recorded_tensor *ids,
                             const ot_recorded_tensor *field) {
  if (field == NULL) return OT_OK;
  bool same = field->num_dims == ids->num_dims;
  for (int i = 0; same && i < ids->num_dims; i++) same = field->shape[i] == ids->shape[i];
  OT_CHECK(same, OT_USAGE, "%s has shape [%s], the ids have [%s]", ot_field_label(b, field),
           ot_dims_text(b->arena, field->shape, field->num_dims),
           ot_dims_text(b->arena, ids->shape, ids->num_dims));
  for (int i = 0; i < field->num_pieces; i++) {
    if (field->pieces[i].elements == field->elements) continue;
    ot_fail(OT_USAGE, "%s: rank %d recorded %lld of its %lld elements", ot_field_label(b, field),
            field->pieces[i].rank, (long long)field->pieces[i].elements,
            (long long)field->elements);
    return ot_fail_hint(OT_USAGE, "record whole sequences, before they are divided over ranks");
  }
  return OT_OK;
}

static int compare_batch(const void *key, const void *item) {
  const ot_recorded_batch *const a = key, *const b = item;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  return (a->micro > b->micro) - (a->micro < b->micro);
}

// Whether the labels are shifted: all ranks that recorded them say the same.
static ot_status find_shifted(const ot_row_building *b, const ot_recorded_tensor *labels,
                              bool *shifted) {
  const ot_recorded_step *const step = b->step;
  for (int i = 0; i < labels->num_pieces; i++) {
    const ot_recorded_batch key = {.rank = labels->pieces[i].rank, .micro = labels->micro};
    const ot_recorded_batch *const found =
        bsearch(&key, step->batches, (size_t)step->num_batches, sizeof key, compare_batch);
    OT_CHECK(found != NULL, OT_USAGE, "%s: key \"batches\" of rank %d has no batch %d",
             ot_field_label(b, labels), key.rank, key.micro);
    OT_CHECK(i == 0 || found->shifted == *shifted, OT_USAGE,
             "%s: shifted at one of ranks %d and %d, but not at the other",
             ot_field_label(b, labels), labels->pieces[0].rank, key.rank);
    *shifted = found->shifted;
  }
  return OT_OK;
}

ot_status ot_fields_find(ot_row_building *b, const ot_recorded_tensor *ids, ot_batch_fields *out) {
  *out = (ot_batch_fields){.ids = ids,
                           .labels = ot_field_find(b, ids, "labels"),
                           .positions = ot_field_find(b, ids, "positions"),
                           .documents = ot_field_find(b, ids, "documents"),
                           .weight = ot_field_find(b, ids, "weight")};
  const ot_recorded_tensor *const fields[] = {ids, out->labels, out->positions, out->documents,
                                              out->weight};
  if (out->labels == NULL) {
    ot_fail(OT_USAGE, "%s: no rank recorded its labels", ot_field_label(b, ids));
    return ot_fail_hint(OT_USAGE, "give batch() the labels of the loss");
  }
  OT_CHECK(ids->num_dims >= 1 && ids->num_dims <= 2 && ids->elements > 0, OT_USAGE,
           "%s has shape [%s], allowed: [sequences, tokens] or [tokens]", ot_field_label(b, ids),
           ot_dims_text(b->arena, ids->shape, ids->num_dims));
  for (int i = 0; i < OT_COUNT(fields); i++) {
    OT_TRY(check_field(b, ids, fields[i]));
    OT_TRY(compare_copies(b, fields[i]));
  }
  out->length = ids->shape[ids->num_dims - 1];
  out->sequences = ids->elements / out->length;
  return find_shifted(b, out->labels, &out->shifted);
}
