// SPDX-License-Identifier: Apache-2.0
// A row starts with an uncovered pair (or as given) and is closed factor by factor. The search
// tries first the level that covers most new pairs with the closed factors, and backtracks to
// others. The same search decides whether a pair is possible.
#include "support/rank_case_cover.h"

#include <string.h>

#include "base/status.h"

typedef struct cover_search {
  const cover_request *request;
  bool *covered;  // [pairs of (factor, level)], or null: no pair counts
  int num_rows;   // so far
  int base[COVER_FACTORS + 1];
} cover_search;

static bool *pair_at(const cover_search *s, int f, int x, int g, int y) {
  const int n = s->base[s->request->num_factors];
  return &s->covered[(s->base[f] + x) * n + s->base[g] + y];
}

static void mark(const cover_search *s, const cover_row *row) {
  for (int f = 0; f < s->request->num_factors; f++) {
    for (int g = 0; g < s->request->num_factors; g++) {
      *pair_at(s, f, row->level[f], g, row->level[g]) = true;
    }
  }
}

// Pairs that level `x` of `f` would newly cover with the closed factors.
static int gain(const cover_search *s, const cover_row *row, int f, int x) {
  int pairs = 0;
  for (int g = 0; s->covered && g < s->request->num_factors; g++) {
    if (g != f && row->level[g] >= 0) pairs += !*pair_at(s, f, x, g, row->level[g]);
  }
  return pairs;
}

// Levels of `f`, largest gain first; equal ones rotate from row to row.
static int order_levels(const cover_search *s, const cover_row *row, int f, int *levels) {
  const int n = s->request->levels[f];
  int gains[COVER_LEVELS];
  for (int i = 0; i < n; i++) {
    const int x = (i + s->num_rows) % n;
    const int g = gain(s, row, f, x);
    int at = i;
    for (; at > 0 && gains[at - 1] < g; at--) {
      gains[at] = gains[at - 1];
      levels[at] = levels[at - 1];
    }
    gains[at] = g;
    levels[at] = x;
  }
  return n;
}

static bool close_row(const cover_search *s, cover_row *row, int from) {
  int f = from;
  while (f < s->request->num_factors && row->level[f] >= 0) f++;
  if (f == s->request->num_factors) return s->request->fits(row);
  int levels[COVER_LEVELS];
  const int n = order_levels(s, row, f, levels);
  for (int i = 0; i < n; i++) {
    row->level[f] = levels[i];
    if (s->request->fits(row) && close_row(s, row, f + 1)) return true;
  }
  row->level[f] = -1;
  return false;
}

bool cover_close(const cover_request *request, int turn, cover_row *row) {
  const cover_search s = {.request = request, .num_rows = turn};
  return request->fits(row) && close_row(&s, row, 0);
}

static cover_row open_row(void) {
  cover_row row;
  for (int f = 0; f < COVER_FACTORS; f++) row.level[f] = -1;
  return row;
}

typedef struct row_list {
  ot_arena *arena;
  cover_row *rows;
  int64_t capacity;
  int count;
} row_list;

static void add_row(row_list *list, const cover_row *row) {
  list->rows = ot_arena_grow(list->arena, list->rows, list->count, &list->capacity, sizeof *row);
  list->rows[list->count++] = *row;
}

static bool close_pair(const cover_search *s, const int pair[4], cover_row *row) {
  *row = open_row();
  row->level[pair[0]] = pair[1];
  row->level[pair[2]] = pair[3];
  return s->request->fits(row) && close_row(s, row, 0);
}

// Visits every pair of levels of two factors once.
static bool next_pair(const cover_request *r, int pair[4]) {
  if (++pair[3] < r->levels[pair[2]]) return true;
  pair[3] = 0;
  if (++pair[1] < r->levels[pair[0]]) return true;
  pair[1] = 0;
  if (++pair[2] < r->num_factors) return true;
  pair[2] = ++pair[0] + 1;
  return pair[2] < r->num_factors;
}

void cover_build(const cover_request *request, ot_arena *arena, cover_array *out) {
  cover_search s = {.request = request};
  for (int f = 0; f < request->num_factors; f++) {
    OT_ASSERT(request->levels[f] <= COVER_LEVELS);
    s.base[f + 1] = s.base[f] + request->levels[f];
  }
  const int n = s.base[request->num_factors];
  s.covered = ot_arena_array(arena, (int64_t)n * n, sizeof(bool));
  row_list list = {.arena = arena};
  *out = (cover_array){0};
  for (int i = 0; i < request->num_given; i++) {
    cover_row row = request->given[i];
    const bool possible = close_row(&s, &row, 0);
    OT_ASSERT(possible);
    mark(&s, &row);
    add_row(&list, &row);
    s.num_rows = list.count;
  }
  for (int pair[4] = {0, 0, 1, -1}; next_pair(request, pair);) {
    if (*pair_at(&s, pair[0], pair[1], pair[2], pair[3])) continue;
    cover_row row;
    if (!close_pair(&s, pair, &row)) {
      out->impossible++;
      continue;
    }
    mark(&s, &row);
    add_row(&list, &row);
    s.num_rows = list.count;
  }
  // Counted from the rows alone, independent of the search.
  memset(s.covered, 0, (size_t)n * (size_t)n);
  for (int i = 0; i < list.count; i++) mark(&s, &list.rows[i]);
  int all = 0;
  for (int pair[4] = {0, 0, 1, -1}; next_pair(request, pair); all++) {
    out->covered += *pair_at(&s, pair[0], pair[1], pair[2], pair[3]);
  }
  out->pairs = all - out->impossible;
  out->num_rows = list.count;
  out->rows = list.rows;
}
