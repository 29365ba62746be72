// SPDX-License-Identifier: Apache-2.0
// Both lists of tensors are sorted by name, so that one pass finds what only one of them has.
#include "checkpoint/checkpoint_diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"

enum { CHUNK = 1 << 16 };

typedef struct comparison {
  ot_checkpoint *files_a, *files_b;
  ot_checkpoint_set set;
  const ot_safetensors *a, *b;  // of the set; either may be null
  ot_arena *arena;
  ot_checkpoint_difference *out;
  double *values;  // [2 x CHUNK]
} comparison;

static ot_difference_group *group_called(comparison *c, const char *name, int64_t length) {
  ot_checkpoint_difference *const d = c->out;
  for (int64_t i = 0; i < d->num_groups; i++)
    if (ot_text_length(d->groups[i].name) == length &&
        memcmp(d->groups[i].name, name, (size_t)length) == 0)
      return &d->groups[i];
  d->groups =
      ot_arena_grow(c->arena, d->groups, d->num_groups, &d->group_capacity, sizeof *d->groups);
  d->groups[d->num_groups] = (ot_difference_group){.name = ot_arena_text(c->arena, name, length)};
  return &d->groups[d->num_groups++];
}

// "m" of "m.NAME".
static ot_difference_group *group_of(comparison *c, const char *name) {
  static const char weights[] = "weights";
  if (c->set == OT_CHECKPOINT_MODEL) return group_called(c, weights, sizeof weights - 1);
  return group_called(c, name, (int64_t)strcspn(name, "."));
}

static ot_tensor_difference *add_difference(comparison *c, const char *name, const char *what) {
  ot_checkpoint_difference *const d = c->out;
  d->tensors =
      ot_arena_grow(c->arena, d->tensors, d->num_tensors, &d->tensor_capacity, sizeof *d->tensors);
  d->tensors[d->num_tensors] = (ot_tensor_difference){
      .name = ot_arena_text(c->arena, name, ot_text_length(name)), .what = what};
  return &d->tensors[d->num_tensors++];
}

static bool same_shape(const ot_safetensors_tensor *a, const ot_safetensors_tensor *b) {
  return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

static const char *shape_of(ot_arena *arena, const ot_safetensors_tensor *t) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < t->rank; i++)
    ot_text_appendf(&text, "%s%lld", i > 0 ? "," : "[", (long long)t->dim[i]);
  ot_text_put(&text, t->rank > 0 ? "]" : "[]");
  return ot_text_builder_text(&text);
}

static void add_values(ot_tensor_difference *d, const double *a, const double *b, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
    const double absolute = fabs(a[i] - b[i]);
    const double larger = fabs(a[i]) > fabs(b[i]) ? fabs(a[i]) : fabs(b[i]);
    d->different++;
    if (!isfinite(absolute)) {
      d->absolute = d->relative = INFINITY;
      continue;
    }
    if (absolute > d->absolute) d->absolute = absolute;
    if (absolute / larger > d->relative) d->relative = absolute / larger;
  }
}

static ot_status compare_values(comparison *c, int at_a, int at_b, ot_tensor_difference *d) {
  const int64_t elements = ot_safetensors_tensor_at(c->a, at_a)->elements;
  for (int64_t first = 0; first < elements; first += CHUNK) {
    const int64_t count = elements - first < CHUNK ? elements - first : CHUNK;
    const ot_safetensors_range of_a = {at_a, first, count}, of_b = {at_b, first, count};
    OT_TRY(ot_checkpoint_fetch(c->files_a, c->set, of_a, OT_F64, c->values));
    OT_TRY(ot_checkpoint_fetch(c->files_b, c->set, of_b, OT_F64, c->values + CHUNK));
    add_values(d, c->values, c->values + CHUNK, count);
  }
  d->compared = true;
  d->elements = elements;
  return OT_OK;
}

static ot_status compare_bits(const comparison *c, int at_a, int at_b, bool *equal) {
  const int64_t bytes = ot_safetensors_tensor_at(c->a, at_a)->bytes;
  const int64_t block = CHUNK * (int64_t)sizeof *c->values;
  *equal = true;
  for (int64_t first = 0; first < bytes && *equal; first += block) {
    const int64_t count = bytes - first < block ? bytes - first : block;
    OT_TRY(ot_checkpoint_fetch_bytes(c->files_a, c->set, (ot_safetensors_range){at_a, first, count},
                                     c->values));
    OT_TRY(ot_checkpoint_fetch_bytes(c->files_b, c->set, (ot_safetensors_range){at_b, first, count},
                                     c->values + CHUNK));
    *equal = memcmp(c->values, c->values + CHUNK, (size_t)count) == 0;
  }
  return OT_OK;
}

static ot_status compare_tensor(comparison *c, int at_a, int at_b, ot_difference_group *group) {
  const ot_safetensors_tensor *const a = ot_safetensors_tensor_at(c->a, at_a);
  const ot_safetensors_tensor *const b = ot_safetensors_tensor_at(c->b, at_b);
  ot_dtype dtype;
  if (!same_shape(a, b)) {
    add_difference(
        c, a->name,
        ot_arena_format(c->arena, "shape %s and %s", shape_of(c->arena, a), shape_of(c->arena, b)));
    return OT_OK;
  }
  const bool same_type = a->type == b->type;
  bool equal = false;
  if (same_type) OT_TRY(compare_bits(c, at_a, at_b, &equal));
  if (equal) {
    group->equal++;
    return OT_OK;
  }
  ot_tensor_difference *const d = add_difference(
      c, a->name,
      same_type ? "values"
                : ot_arena_format(c->arena, "dtype %s and %s", ot_safetensors_type_name(a->type),
                                  ot_safetensors_type_name(b->type)));
  if (!ot_safetensors_type_dtype(a->type, &dtype) || !ot_safetensors_type_dtype(b->type, &dtype))
    return OT_OK;
  OT_TRY(compare_values(c, at_a, at_b, d));
  if (d->absolute > group->absolute) group->absolute = d->absolute;
  if (d->relative > group->relative) group->relative = d->relative;
  return OT_OK;
}

static ot_status compare_set(comparison *c) {
  const int count_a = c->a ? ot_safetensors_count(c->a) : 0;
  const int count_b = c->b ? ot_safetensors_count(c->b) : 0;
  for (int i = 0, k = 0; i < count_a || k < count_b;) {
    const char *const a = i < count_a ? ot_safetensors_tensor_at(c->a, i)->name : NULL;
    const char *const b = k < count_b ? ot_safetensors_tensor_at(c->b, k)->name : NULL;
    const int order = !a ? 1 : !b ? -1 : ot_text_compare(a, b);
    ot_difference_group *const group = group_of(c, order <= 0 ? a : b);
    group->tensors++;
    if (order == 0) OT_TRY(compare_tensor(c, i, k, group));
    if (order < 0) add_difference(c, a, "only in the first");
    if (order > 0) add_difference(c, b, "only in the second");
    i += order <= 0;
    k += order >= 0;
  }
  return OT_OK;
}

ot_status ot_checkpoint_compare(ot_checkpoint *a, ot_checkpoint *b, ot_arena *arena,
                                ot_checkpoint_difference *difference) {
  *difference = (ot_checkpoint_difference){0};
  comparison c = {.files_a = a, .files_b = b, .arena = arena, .out = difference};
  c.values = ot_arena_array(arena, 2 * CHUNK, sizeof *c.values);
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++) {
    c.set = (ot_checkpoint_set)set;
    c.a = ot_checkpoint_tensors(a, c.set);
    c.b = ot_checkpoint_tensors(b, c.set);
    OT_TRY(compare_set(&c));
  }
  return OT_OK;
}
