// SPDX-License-Identifier: Apache-2.0
// Parts of parameters, grouped by the HF tensor that they are slices of.
#include <string.h>

#include "base/sort.h"
#include "base/text.h"
#include "checkpoint/weights.h"

// One part, with the properties that all parts of a tensor share.
typedef struct part_entry {
  const char *name;
  int order;  // of all parts
  int rank;
  int64_t cols, hf_rows;
  bool transposed, interleaved;
  ot_weight_slice piece;
} part_entry;

static int by_name_and_place(const void *a, const void *b, const void *context) {
  (void)context;
  const part_entry *const x = a, *const y = b;
  const int names = ot_text_compare(x->name, y->name);
  if (names != 0) return names;
  return (x->piece.hf_first > y->piece.hf_first) - (x->piece.hf_first < y->piece.hf_first);
}

static part_entry *list_parts(ot_arena *arena, const ot_parameter *parameters, int num_parameters,
                              int *num_parts) {
  int count = 0;
  for (int i = 0; i < num_parameters; i++) count += parameters[i].num_parts;
  part_entry *const entries = ot_arena_array(arena, count, sizeof *entries);
  *num_parts = 0;
  for (int i = 0; i < num_parameters; i++) {
    for (int j = 0; j < parameters[i].num_parts; j++) {
      const ot_parameter_part *const part = &parameters[i].parts[j];
      entries[*num_parts] =
          (part_entry){part->hf_name,      *num_parts,
                       parameters[i].rank, parameters[i].cols,
                       part->hf_rows,      part->transposed,
                       part->interleaved,  {i, part->first_row, part->rows, part->hf_first}};
      (*num_parts)++;
    }
  }
  return entries;
}

// The tensor made of `parts` [num_parts], which share a name.
static ot_status join_parts(ot_arena *arena, const part_entry *parts, int num_parts,
                            ot_weight_tensor *tensor) {
  const part_entry *const first = &parts[0];
  *tensor = (ot_weight_tensor){.name = first->name,
                               .rank = first->rank,
                               .rows = first->hf_rows,
                               .cols = first->cols,
                               .transposed = first->transposed,
                               .interleaved = first->interleaved,
                               .num_pieces = num_parts};
  tensor->dim[0] = tensor->transposed ? tensor->cols : tensor->rows;
  tensor->dim[1] = tensor->transposed ? tensor->rows : tensor->cols;
  tensor->pieces = ot_arena_array(arena, num_parts, sizeof *tensor->pieces);
  int64_t row = 0;
  for (int i = 0; i < num_parts; i++) {
    const part_entry *const part = &parts[i];
    OT_CHECK(part->rank == first->rank && part->cols == first->cols &&
                 part->hf_rows == first->hf_rows && part->transposed == first->transposed &&
                 part->interleaved == first->interleaved && part->piece.hf_first == row,
             OT_BUG, "the parts of tensor %s do not fit each other", first->name);
    tensor->pieces[i] = part->piece;
    row += part->piece.rows;
  }
  OT_CHECK(row == tensor->rows, OT_BUG, "the parts of tensor %s cover %lld of its %lld rows",
           first->name, (long long)row, (long long)tensor->rows);
  return OT_OK;
}

typedef struct tensor_entry {
  int order;  // of its first part
  ot_weight_tensor tensor;
} tensor_entry;

static int by_order(const void *a, const void *b, const void *context) {
  (void)context;
  const tensor_entry *const x = a, *const y = b;
  return (x->order > y->order) - (x->order < y->order);
}

static int by_name(const void *a, const void *b, const void *context) {
  const ot_weight_tensor *const tensors = context;
  return ot_text_compare(tensors[*(const int *)a].name, tensors[*(const int *)b].name);
}

// `parts` are sorted by name and position.
static ot_status join_all(ot_arena *arena, const part_entry *parts, int num_parts,
                          ot_weight_map *map) {
  tensor_entry *const entries = ot_arena_array(arena, num_parts, sizeof *entries);
  for (int i = 0, end; i < num_parts; i = end) {
    tensor_entry *const entry = &entries[map->num_tensors++];
    entry->order = parts[i].order;
    for (end = i; end < num_parts && ot_text_equal(parts[end].name, parts[i].name); end++)
      if (parts[end].order < entry->order) entry->order = parts[end].order;
    OT_TRY(join_parts(arena, &parts[i], end - i, &entry->tensor));
  }
  ot_sort(entries, map->num_tensors, sizeof *entries, (ot_ordering){by_order, NULL}, arena);
  map->tensors = ot_arena_array(arena, map->num_tensors, sizeof *map->tensors);
  map->by_name = ot_arena_array(arena, map->num_tensors, sizeof *map->by_name);
  for (int i = 0; i < map->num_tensors; i++) {
    map->tensors[i] = entries[i].tensor;
    map->by_name[i] = i;
  }
  ot_sort(map->by_name, map->num_tensors, sizeof *map->by_name,
          (ot_ordering){by_name, map->tensors}, arena);
  return OT_OK;
}

ot_status ot_weight_map_build(ot_arena *arena, const ot_parameter *parameters, int num_parameters,
                              ot_weight_map *map) {
  *map = (ot_weight_map){.parameters = parameters, .tied_tensor = -1};
  int num_parts = 0;
  part_entry *const parts = list_parts(arena, parameters, num_parameters, &num_parts);
  ot_sort(parts, num_parts, sizeof *parts, (ot_ordering){by_name_and_place, NULL}, arena);
  OT_TRY(join_all(arena, parts, num_parts, map));
  for (int i = 0; i < num_parameters; i++) {
    if (parameters[i].tied_to < 0) continue;
    const ot_parameter *const shared = &parameters[parameters[i].tied_to];
    OT_CHECK(shared->num_parts == 1, OT_BUG, "tied parameter %s is not one tensor", shared->name);
    map->tied_tensor = ot_weight_map_find(map, shared->parts[0].hf_name);
  }
  return OT_OK;
}

static int find_exact(const ot_weight_map *map, const char *name) {
  int low = 0, high = map->num_tensors;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const int order = ot_text_compare(map->tensors[map->by_name[middle]].name, name);
    if (order == 0) return map->by_name[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

int ot_weight_map_find(const ot_weight_map *map, const char *name) {
  enum { NAME_BYTES = 1024 };
  static const char *const prefixes[] = {"", "transformer.", "model."};
  for (int i = 0; i < 3; i++) {
    char full[NAME_BYTES];
    ot_text_format(full, sizeof full, "%s%s", prefixes[i], name);
    const int found = find_exact(map, full);
    if (found >= 0) return found;
  }
  return -1;
}
