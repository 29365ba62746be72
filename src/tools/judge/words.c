// SPDX-License-Identifier: Apache-2.0
#include "judge/words.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"

// ---- tensors ----

enum { KINDS_NAMED = 3, NAMES = 4 };

typedef struct kind_count {
  const char *kind;
  int members, all;
} kind_count;

// Counts the tensors of each kind, in the order of their first members.
static int count_kinds(const ot_evidence *e, const bool *members, kind_count *kinds) {
  int count = 0;
  for (int t = 0; t < e->num_tensors; t++) {
    int k = 0;
    while (k < count && !ot_text_equal(kinds[k].kind, e->tensors[t].kind)) k++;
    if (k == count) kinds[count++] = (kind_count){.kind = e->tensors[t].kind};
    kinds[k].members += members[t];
    kinds[k].all++;
  }
  return count;
}

// ", layers 3 to 7" of members that are not in all layers; "" otherwise.
static const char *layers_of(const ot_evidence *e, const bool *members, ot_arena *arena) {
  int low = -1, high = -1, first = -1, last = -1;
  for (int t = 0; t < e->num_tensors; t++) {
    const int layer = e->tensors[t].layer;
    if (layer < 0) continue;
    first = first < 0 || layer < first ? layer : first;
    last = layer > last ? layer : last;
    if (!members[t]) continue;
    low = low < 0 || layer < low ? layer : low;
    high = layer > high ? layer : high;
  }
  if (low < 0 || (low == first && high == last)) return "";
  if (low == high) return ot_arena_format(arena, ", layer %d", low);
  return ot_arena_format(arena, ", layers %d to %d", low, high);
}

static const char *first_names(const ot_evidence *e, const bool *members, int count,
                               ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  int named = 0;
  for (int t = 0; t < e->num_tensors && named < NAMES; t++) {
    if (!members[t]) continue;
    ot_text_appendf(&text, "%s%s", named++ > 0 ? ", " : "", e->tensors[t].name);
  }
  if (count > named) ot_text_appendf(&text, " and %d more", count - named);
  return ot_text_builder_text(&text);
}

const char *ot_words_of_tensors(const ot_evidence *e, const bool *members, ot_arena *arena) {
  kind_count *const kinds = ot_arena_array(arena, e->num_tensors + 1, sizeof *kinds);
  ot_text_builder text = {.arena = arena};
  const int num_kinds = count_kinds(e, members, kinds);
  int count = 0, named = 0;
  for (int t = 0; t < e->num_tensors; t++) count += members[t];
  if (count == e->num_tensors) return ot_arena_format(arena, "all %d tensors", count);
  if (count <= NAMES) return first_names(e, members, count, arena);
  for (int k = 0; k < num_kinds; k++) {
    if (kinds[k].members == 0) continue;
    if (named == KINDS_NAMED) return first_names(e, members, count, arena);
    ot_text_appendf(&text, "%s%s", named++ > 0 ? ", " : "", kinds[k].kind);
  }
  ot_text_appendf(&text, " (%d tensors%s)", count, layers_of(e, members, arena));
  return ot_text_builder_text(&text);
}

// ---- factors ----

// Exponents -1, 0 or 1 of the sizes.
typedef struct product {
  int above[2], below[2];
  int num_above, num_below;
} product;

static const char *print_side(const ot_step_size *sizes, const int *list, int count, bool brackets,
                              ot_arena *arena) {
  if (count == 0) return "1";
  if (count == 1) return sizes[list[0]].name;
  return ot_arena_format(arena, brackets ? "(%s x %s)" : "%s x %s", sizes[list[0]].name,
                         sizes[list[1]].name);
}

static const char *print_product(const ot_step_size *sizes, const product *p, ot_arena *arena) {
  const char *const above = print_side(sizes, p->above, p->num_above, false, arena);
  if (p->num_below == 0) return above;
  return ot_arena_format(arena, "%s/%s", above,
                         print_side(sizes, p->below, p->num_below, true, arena));
}

static bool is_near(double value, double factor, double tolerance) {
  return fabs(value - factor) <= tolerance * fabs(factor);
}

static bool match_one(const ot_step_size *sizes, int count, double factor, double tolerance,
                      product *out) {
  for (int i = 0; i < count; i++) {
    *out = (product){.above = {i}, .num_above = 1};
    if (is_near(sizes[i].size, factor, tolerance)) return true;
    *out = (product){.below = {i}, .num_below = 1};
    if (is_near(1 / sizes[i].size, factor, tolerance)) return true;
  }
  return false;
}

static bool match_two(const ot_step_size *sizes, int count, double factor, double tolerance,
                      product *out) {
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < count; k++) {
      const double a = sizes[i].size, b = sizes[k].size;
      *out = (product){.above = {i, k}, .num_above = 2};
      if (i < k && is_near(a * b, factor, tolerance)) return true;
      *out = (product){.below = {i, k}, .num_below = 2};
      if (i < k && is_near(1 / (a * b), factor, tolerance)) return true;
      *out = (product){.above = {i}, .num_above = 1, .below = {k}, .num_below = 1};
      if (i != k && is_near(a / b, factor, tolerance)) return true;
    }
  }
  return false;
}

const char *ot_words_of_factor(const ot_step_size *sizes, int count, double factor,
                               double tolerance, ot_arena *arena) {
  ot_step_size *const used = ot_arena_array(arena, count + 1, sizeof *used);
  int num_used = 0;
  product found;
  if (is_near(1, factor, tolerance)) return NULL;
  for (int i = 0; i < count; i++) {
    if (sizes[i].size > 1) used[num_used++] = sizes[i];
  }
  if (match_one(used, num_used, factor, tolerance, &found) ||
      match_two(used, num_used, factor, tolerance, &found))
    return print_product(used, &found, arena);
  return fabs(factor) <= tolerance ? "0" : NULL;
}
