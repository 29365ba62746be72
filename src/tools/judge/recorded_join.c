// SPDX-License-Identifier: Apache-2.0
// The tensors of all ranks put together: pieces of one tensor agree on its shape and type, and are
// enough to cover it.
#include <stdlib.h>

#include "base/name_list.h"
#include "base/text.h"
#include "judge/recorded_parts.h"

// Tensors of different batches are different tensors, and so are those of different data.
static int compare_tensors(const ot_recorded_tensor *a, const ot_recorded_tensor *b) {
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  const int by_name = ot_text_compare(a->name, b->name);
  if (by_name != 0) return by_name;
  if (a->dp_rank != b->dp_rank) return a->dp_rank < b->dp_rank ? -1 : 1;
  return (a->micro > b->micro) - (a->micro < b->micro);
}

// By rank, too: keys of a rank are unique, so no two entries are equal.
static int compare_entries(const void *a, const void *b) {
  const ot_recorded_entry *const x = a, *const y = b;
  const int order = compare_tensors(&x->tensor, &y->tensor);
  return order != 0 ? order : (x->piece.rank > y->piece.rank) - (x->piece.rank < y->piece.rank);
}

// "tensor grad/model.norm.weight", "tensor act/0.model.layers.1".
static const char *label(const ot_recorded_reading *reading, const ot_recorded_tensor *tensor) {
  const char *const kind = ot_recorded_kind_name(tensor->kind);
  if (tensor->micro < 0) return ot_arena_format(reading->arena, "tensor %s/%s", kind, tensor->name);
  return ot_arena_format(reading->arena, "tensor %s/%d.%s", kind, tensor->micro, tensor->name);
}

// Entries `a` and `b` are pieces of one tensor.
static ot_status compare_pieces(const ot_recorded_reading *reading, const ot_recorded_entry *a,
                                const ot_recorded_entry *b) {
  const ot_recorded_tensor *const x = &a->tensor, *const y = &b->tensor;
  bool same = x->num_dims == y->num_dims;
  for (int i = 0; same && i < x->num_dims; i++) same = x->shape[i] == y->shape[i];
  OT_CHECK(same, OT_USAGE, "%s: %s has shape [%s] at rank %d and [%s] at rank %d",
           reading->step->path, label(reading, x),
           ot_dims_text(reading->arena, x->shape, x->num_dims), a->piece.rank,
           ot_dims_text(reading->arena, y->shape, y->num_dims), b->piece.rank);
  OT_CHECK(x->dtype == y->dtype, OT_USAGE, "%s: %s is %s at rank %d and %s at rank %d",
           reading->step->path, label(reading, x), ot_dtype_name(x->dtype), a->piece.rank,
           ot_dtype_name(y->dtype), b->piece.rank);
  OT_CHECK(x->partial == y->partial, OT_USAGE,
           "%s: %s is partial over other axes at rank %d than at rank %d", reading->step->path,
           label(reading, x), b->piece.rank, a->piece.rank);
  return OT_OK;
}

// Also bounds the memory for a whole tensor by the bytes of the record.
static ot_status check_size(const ot_recorded_reading *reading, const ot_recorded_tensor *tensor) {
  int64_t held = 0;
  for (int i = 0; i < tensor->num_pieces; i++) held += tensor->pieces[i].elements;
  if (held >= tensor->elements) return OT_OK;
  ot_fail(OT_USAGE, "%s: %s has %lld elements, but the %d ranks that hold some of it hold %lld",
          reading->step->path, label(reading, tensor), (long long)tensor->elements,
          tensor->num_pieces, (long long)held);
  return ot_fail_hint(OT_USAGE, "every rank records its part; ranks without one are missing");
}

static ot_status join_tensor(const ot_recorded_reading *reading, int64_t first, int64_t end,
                             ot_recorded_tensor *tensor) {
  const ot_recorded_entry *const entries = reading->entries;
  ot_recorded_piece *const pieces = ot_arena_array(reading->arena, end - first, sizeof *pieces);
  for (int64_t i = first; i < end; i++) {
    OT_TRY(compare_pieces(reading, &entries[first], &entries[i]));
    pieces[i - first] = entries[i].piece;
  }
  *tensor = entries[first].tensor;
  tensor->num_pieces = (int)(end - first);
  tensor->pieces = pieces;
  return check_size(reading, tensor);
}

static ot_status join_tensors(ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  ot_recorded_entry *const entries = reading->entries;
  const int64_t count = reading->num_entries;
  for (int64_t i = 0; i < count; i++)
    if (entries[i].tensor.micro >= 0)
      entries[i].tensor.dp_rank = reading->ranks[entries[i].piece.rank].dp_rank;
  if (count > 0) qsort(entries, (size_t)count, sizeof *entries, compare_entries);
  ot_recorded_tensor *const tensors = ot_arena_array(reading->arena, count, sizeof *tensors);
  step->tensors = tensors;
  for (int64_t first = 0, end; first < count; first = end) {
    end = first + 1;
    while (end < count && compare_tensors(&entries[first].tensor, &entries[end].tensor) == 0) end++;
    OT_TRY(join_tensor(reading, first, end, &tensors[step->num_tensors++]));
  }
  return OT_OK;
}

// ---- batches, scalars, aliases ----

static int compare_batches(const void *a, const void *b) {
  const ot_recorded_batch *const x = a, *const y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return (x->micro > y->micro) - (x->micro < y->micro);
}

static int compare_scalars(const void *a, const void *b) {
  const ot_recorded_scalar *const x = a, *const y = b;
  const int by_name = ot_text_compare(x->name, y->name);
  return by_name != 0 ? by_name : (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_aliases(const void *a, const void *b) {
  const ot_recorded_alias *const x = a, *const y = b;
  const int by_name = ot_text_compare(x->name, y->name);
  return by_name != 0 ? by_name : ot_text_compare(x->target, y->target);
}

static ot_status join_batches(ot_recorded_reading *reading) {
  const int64_t count = reading->step->num_batches;
  ot_recorded_batch *const batches = reading->batches;
  if (count > 0) qsort(batches, (size_t)count, sizeof *batches, compare_batches);
  for (int64_t i = 1; i < count; i++)
    OT_CHECK(compare_batches(&batches[i - 1], &batches[i]) != 0, OT_USAGE,
             "%s: rank %d recorded two batches with the number %d", reading->step->path,
             batches[i].rank, batches[i].micro);
  reading->step->batches = batches ? batches : ot_arena_array(reading->arena, 1, sizeof *batches);
  return OT_OK;
}

// Tied tensors have the same names on all ranks; each pair is kept once.
static ot_status join_aliases(ot_recorded_reading *reading) {
  ot_recorded_alias *const aliases = reading->aliases;
  const int64_t count = reading->step->num_aliases;
  int64_t kept = 0;
  if (count > 0) qsort(aliases, (size_t)count, sizeof *aliases, compare_aliases);
  for (int64_t i = 0; i < count; i++) {
    const bool again = kept > 0 && ot_text_equal(aliases[kept - 1].name, aliases[i].name);
    OT_CHECK(!again || ot_text_equal(aliases[kept - 1].target, aliases[i].target), OT_USAGE,
             "%s: %s is an alias of both %s and %s", reading->step->path, aliases[i].name,
             aliases[kept - 1].target, aliases[i].target);
    if (!again) aliases[kept++] = aliases[i];
  }
  reading->step->aliases = aliases;
  reading->step->num_aliases = kept;
  return OT_OK;
}

ot_status ot_recorded_join(ot_recorded_reading *reading) {
  ot_recorded_step *const step = reading->step;
  OT_TRY(join_batches(reading));
  OT_TRY(join_aliases(reading));
  if (step->num_scalars > 0)
    qsort(reading->scalars, (size_t)step->num_scalars, sizeof *reading->scalars, compare_scalars);
  step->scalars = reading->scalars;
  step->groups = reading->groups;
  return join_tensors(reading);
}
